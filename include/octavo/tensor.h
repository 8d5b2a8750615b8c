// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace octavo {

/// Element types. f8_e4m3 is the "fn" variant: S.1111.111 is NaN, no infinities, largest value 448.
/// i8 is two's complement; codes of Q and K use -127 to 127.
enum class DType : std::uint8_t { f32, f16, bf16, f8_e4m3, f8_e5m2, i8 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::i8: return 1;
  }
  return 0;
}

constexpr bool is_fp8(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }

/// Types of 8 bits, which come with descales.
constexpr bool is_quantised(DType dtype) { return is_fp8(dtype) || dtype == DType::i8; }

/// "f32", "f16", "bf16", "f8_e4m3", "f8_e5m2", "i8".
const char* dtype_name(DType dtype) noexcept;

/// The reverse of dtype_name. Throws Error{invalid_argument} with the list of names.
DType parse_dtype(const std::string& name);

/// Where the bytes of a tensor are.
struct Device {
  enum class Kind : std::uint8_t { cpu, cuda } kind = Kind::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr int kMaxRank = 4;

/// A view of memory that somebody else owns: pointer, shape, strides in elements, type, device.
///
/// Strides may be any multiple of an element as long as the last dimension has stride 1 where a
/// function says so; a stride of 0 broadcasts. An absent (optional) tensor has rank 0.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> stride{};
  Device device{};

  bool present() const { return rank > 0; }

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
};

/// A row-major view of `data` with the given shape.
TensorView contiguous(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                      Device device = {});

/// The same memory with dimensions `a` and `b` exchanged: [b, h, s, d] seen as [b, s, h, d] is
/// transposed(x, 1, 2).
TensorView transposed(TensorView x, int a, int b);

}  // namespace octavo
