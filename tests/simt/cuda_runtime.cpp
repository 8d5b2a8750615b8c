// SPDX-License-Identifier: Apache-2.0
// What of the CUDA runtime the quantiser and its tests call, on host memory: allocations end at a
// page that must not be touched, and launches run at once (simt.h). No streams, no graphs.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "simt.h"
#include "sm90/quantize/args.h"

namespace {

using octavo::sm90::QuantizeArgs;

constexpr std::size_t kPage = 4096;

std::map<void*, std::size_t>& mappings() {
  static std::map<void*, std::size_t> of_all;
  return of_all;
}

cudaError_t run(const void* kernel, void** parameters, dim3 grid, dim3 block, std::size_t shared) {
  const auto call = [](const void* function, const void* arguments) {
    const auto entry = reinterpret_cast<void (*)(QuantizeArgs)>(const_cast<void*>(function));
    entry(*static_cast<const QuantizeArgs*>(arguments));
  };
  octavo::simt::launch(call, kernel, parameters[0], static_cast<int>(grid.x),
                       static_cast<int>(block.x), shared);
  return cudaSuccess;
}

CUresult fill_words(CUdeviceptr at, unsigned value, std::size_t count, CUstream) {
  std::fill_n(reinterpret_cast<unsigned*>(at), count, value);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  const std::size_t whole = (bytes + kPage - 1) / kPage * kPage, all = whole + 2 * kPage;
  void* base = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return cudaErrorMemoryAllocation;
  char* data = static_cast<char*>(base) + kPage;
  mprotect(base, kPage, PROT_NONE);
  mprotect(data + whole, kPage, PROT_NONE);
  mappings()[data] = all;
  *out = data;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  const auto mapping = mappings().find(data);
  if (mapping == mappings().end()) return cudaSuccess;
  munmap(static_cast<char*>(data) - kPage, mapping->second);
  mappings().erase(mapping);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  return cudaMemset(to, value, bytes);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t pitch,
                         std::size_t width, std::size_t rows, cudaMemcpyKind) {
  for (std::size_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(from) + i * pitch,
                width);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "error"; }
const char* cudaGetErrorString(cudaError_t) { return "error"; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
/// One multiprocessor: blocks then take several heads each.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount      ? 1
           : attribute == cudaDevAttrComputeCapabilityMajor ? 9
                                                            : 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  properties->major = 9;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = reinterpret_cast<void*>(&fill_words);  // the one that is asked for
  *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** parameters) {
  return run(kernel, parameters, config->gridDim, config->blockDim, config->dynamicSmemBytes);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** parameters,
                             std::size_t shared, cudaStream_t) {
  return run(kernel, parameters, grid, block, shared);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) { return cudaErrorNotSupported; }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return cudaErrorNotSupported;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorNotSupported; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaErrorNotSupported; }

}  // extern "C"
