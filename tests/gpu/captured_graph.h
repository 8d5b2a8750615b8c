// SPDX-License-Identifier: Apache-2.0
// What a call launches on a stream, to be repeated.
#pragma once

#include <cuda_runtime_api.h>

#include "sm90/check.h"

namespace octavo::test {

class CapturedGraph {
 public:
  /// `launch(stream)` is recorded, not run.
  template <typename Launch>
  explicit CapturedGraph(const Launch& launch) {
    sm90::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    sm90::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "capture");
    launch(stream_);
    sm90::check(cudaStreamEndCapture(stream_, &graph_), "end of capture");
    sm90::check(cudaGraphInstantiate(&executable_, graph_, 0), "instantiating");
  }
  ~CapturedGraph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
    cudaStreamDestroy(stream_);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  /// Waits for the end.
  void replay() const {
    sm90::check(cudaGraphLaunch(executable_, stream_), "replay");
    sm90::check(cudaStreamSynchronize(stream_), "replay");
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace octavo::test
