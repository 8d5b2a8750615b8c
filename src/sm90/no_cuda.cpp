// SPDX-License-Identifier: Apache-2.0
// What octavo/cuda.h promises in a library that was built without a CUDA toolkit.
#include "octavo/cuda.h"
#include "octavo/error.h"
#include "sm90/quantize/quantize_host.h"
#include "sm90/sm90.h"

namespace octavo {
namespace {

[[noreturn]] void unsupported(const char* function) {
  throw Error(ErrorCode::unsupported, std::string(function) +
                                          ": this library was built without CUDA; the CPU engine "
                                          "`emulate` computes the same codes");
}

}  // namespace

std::vector<std::int64_t> DeviceOperand::descale_shape() const { return {0}; }
std::int64_t DeviceOperand::descales() const { return 0; }

DeviceOperand device_operand(const TensorView&, Granularity, bool) {
  unsupported("device_operand");
}

std::size_t quantize_workspace_bytes(const QuantizeParams&) {
  unsupported("quantize_workspace_bytes");
}

DeviceQkv quantize_on_device(const QuantizeParams&, void*, std::size_t, CudaStream,
                             const std::int32_t*) {
  unsupported("quantize_on_device");
}

void repack_v_on_device(const TensorView&, const DeviceOperand&, CudaStream,
                        const std::vector<std::int64_t>&, const std::int32_t*) {
  unsupported("repack_v_on_device");
}

QuantizedQkv sm90::quantize_host_tensors(const QuantizeParams&) { unsupported("quantize on sm90"); }

std::size_t attention_workspace_bytes(const AttentionParams&) {
  unsupported("attention_workspace_bytes");
}

void attention_on_device(const AttentionParams&, void*, std::size_t, CudaStream,
                         const std::int32_t*) {
  unsupported("attention_on_device");
}

void attention_on_device(const AttentionParams&, const DeviceQkv&, CudaStream,
                         const std::int32_t*) {
  unsupported("attention_on_device");
}

std::size_t attention_workspace_bytes(const AttentionParams&, const DeviceQkv&) {
  unsupported("attention_workspace_bytes");
}

void attention_on_device(const AttentionParams&, const DeviceQkv&, void*, std::size_t, CudaStream,
                         const std::int32_t*) {
  unsupported("attention_on_device");
}

std::string describe_attention_kernel(const AttentionParams&) {
  unsupported("describe_attention_kernel");
}

DeviceStatus device_status() { return {false, "this library was built without CUDA"}; }

namespace sm90 {
namespace {

std::string why_unsupported(const AttentionProblem&) { return device_status().sentence; }

AttentionStats run(const AttentionProblem&) { unsupported("attention_forward on sm90"); }

}  // namespace

const Engine kEngine{"sm90", "Hopper FP8 tensor cores", true, why_unsupported, run};

}  // namespace sm90
}  // namespace octavo
