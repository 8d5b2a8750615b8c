// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/atomic_file.h"
#include "io/mapped_file.h"
#include "io/npy.h"
#include "io/npy_header.h"
#include "io/safetensors.h"
#include "io/sentence.h"
#include "octavo/error.h"
#include "octavo/tensor.h"

namespace octavo::io {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;
using Shape = std::vector<std::int64_t>;

constexpr DType kAllDTypes[] = {DType::f32,     DType::f16,     DType::bf16,
                                DType::f8_e4m3, DType::f8_e5m2, DType::i8};

Bytes to_bytes(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

/// `count` bytes that all differ from their neighbours, so that a shift or a swap shows.
Bytes pattern(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

/// The elements of any view, packed row-major by the plainest possible loop.
Bytes packed(const TensorView& view) {
  Bytes out;
  std::array<std::int64_t, kMaxRank> index{};
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  for (std::int64_t n = view.numel(); n > 0; --n) {
    std::int64_t offset = 0;
    for (int i = 0; i < view.rank; ++i) offset += index[i] * view.stride[i];
    const auto* at = static_cast<const std::byte*>(view.data) + offset * size;
    out.insert(out.end(), at, at + size);
    for (int i = view.rank - 1; i >= 0 && ++index[i] == view.shape[i]; --i) index[i] = 0;
  }
  return out;
}

Shape shape_of(const TensorView& view) {
  return {view.shape.begin(), view.shape.begin() + view.rank};
}

bool is_row_major(const TensorView& view) {
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    if (view.stride[i] != stride) return false;
    stride *= view.shape[i];
  }
  return true;
}

/// The sentence of the Error that `call` throws; a test failure when it throws none or another.
std::string sentence_of(ErrorCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an octavo::Error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// Every test has a folder of its own, removed at the end.
class IoTest : public ::testing::Test {
 protected:
  IoTest() {
    std::string name = (fs::temp_directory_path() / "octavo-io-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    folder_ = name;
  }
  ~IoTest() override { fs::remove_all(folder_); }

  fs::path path(const std::string& name) const { return folder_ / name; }

  fs::path put(const std::string& name, const Bytes& bytes) const {
    std::ofstream out(path(name), std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    return path(name);
  }

  static Bytes get(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return to_bytes({std::istreambuf_iterator<char>(in), {}});
  }

  std::set<std::string> listing() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  /// Expects `call` to fail with the sentence "FILE: ...fragment...".
  static void expect_refused(const fs::path& file, const std::string& fragment,
                             const std::function<void()>& call) {
    const std::string sentence = sentence_of(ErrorCode::io, call);
    EXPECT_EQ(sentence.find(file.string() + ": "), 0U) << sentence;
    EXPECT_NE(sentence.find(fragment), std::string::npos) << sentence << "\nlacks: " << fragment;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
    EXPECT_TRUE(is_utf8(sentence)) << sentence;
  }

  fs::path folder_;
};

// ------------------------------------------------------------------------------- safetensors

class Safetensors : public IoTest {
 protected:
  static Bytes file_of(const std::string& header, std::size_t data_bytes) {
    Bytes bytes(8);
    const auto length = static_cast<std::uint64_t>(header.size());
    std::memcpy(bytes.data(), &length, 8);
    const Bytes text = to_bytes(header);
    bytes.insert(bytes.end(), text.begin(), text.end());
    const Bytes data = pattern(data_bytes);
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
  }

  static std::string entry(const std::string& name, const std::string& dtype,
                           const std::string& shape, const std::string& offsets) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}";
  }

  SafetensorsFile open(const std::string& header, std::size_t data_bytes) const {
    return SafetensorsFile::open(put("x.safetensors", file_of(header, data_bytes)));
  }

  void expect_damaged(const std::string& header, std::size_t data_bytes,
                      const std::string& fragment) const {
    SCOPED_TRACE(header.substr(0, 200));
    expect_bytes_damaged(file_of(header, data_bytes), fragment);
  }

  void expect_bytes_damaged(const Bytes& bytes, const std::string& fragment) const {
    const fs::path file = put("x.safetensors", bytes);
    expect_refused(file, fragment, [&] { SafetensorsFile::open(file); });
    // A mapping is padded with zeros to a page; a heap block of the exact size shows over-reads.
    expect_refused(file, fragment, [&] { parse_safetensors(file.string(), bytes); });
  }
};

TEST_F(Safetensors, RoundTripsEveryDType) {
  std::map<DType, Bytes> data;
  SafetensorsWriter writer;
  for (const DType dtype : kAllDTypes) {
    data[dtype] = pattern(3 * 5 * size_of(dtype));
    writer.add(dtype_name(dtype), contiguous(data[dtype].data(), dtype, {3, 5}));
  }
  writer.set_metadata({{"source", "a \"quoted\" \xC3\xA9"}, {"", ""}});
  writer.write(path("all.safetensors"));

  const auto file = SafetensorsFile::open(path("all.safetensors"));
  EXPECT_EQ(file.metadata().at("source"), "a \"quoted\" \xC3\xA9");
  EXPECT_EQ(file.metadata().size(), 2U);
  ASSERT_EQ(file.entries().size(), std::size(kAllDTypes));
  EXPECT_TRUE(std::is_sorted(file.entries().begin(), file.entries().end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (const DType dtype : kAllDTypes) {
    const TensorView view = file.tensor(dtype_name(dtype));
    EXPECT_EQ(view.dtype, dtype);
    EXPECT_EQ(shape_of(view), (Shape{3, 5}));
    EXPECT_TRUE(is_row_major(view));
    EXPECT_EQ(packed(view), data[dtype]) << dtype_name(dtype);
    const SafetensorsEntry* found = file.find(dtype_name(dtype));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(view.data, found->data) << "the writer aligns all tensors: nothing is copied";
    EXPECT_EQ(found->size, 15 * size_of(dtype));
  }
  EXPECT_EQ(file.find("f64"), nullptr);
}

TEST_F(Safetensors, WritesTheFormat) {
  const Bytes a = pattern(3);
  const Bytes b = pattern(8);
  SafetensorsWriter writer;
  writer.add("a", contiguous(const_cast<std::byte*>(a.data()), DType::f8_e5m2, {3}));
  writer.add("b", contiguous(const_cast<std::byte*>(b.data()), DType::f32, {1, 2}));
  writer.set_metadata({{"k", "v"}});
  writer.write(path("x.safetensors"));

  const std::string header =
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F8_E5M2","shape":[3],"data_offsets":[8,11]}})";
  Bytes expected = file_of(header + std::string(8 - header.size() % 8, ' '), 0);
  ASSERT_NE(header.size() % 8, 0U) << "the padding would go untested";
  expected.insert(expected.end(), b.begin(), b.end());
  expected.insert(expected.end(), a.begin(), a.end());
  EXPECT_EQ(get(path("x.safetensors")), expected);
}

TEST_F(Safetensors, WritesStridedViewsRowMajor) {
  // 1.2 MB: several buffers of the writer, the last one partly filled, and rows that straddle them.
  constexpr std::int64_t kRows = 3, kColumns = 50'001, kDepth = 2;
  Bytes base = pattern(kRows * kColumns * kDepth * 4);
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    const TensorView plain = contiguous(base.data(), dtype, {1, kRows, kColumns, kDepth});
    TensorView stepped = plain;  // every second column, backwards
    stepped.shape[2] = kColumns / 2;
    stepped.stride[2] *= -2;
    stepped.data = base.data() + (kColumns - 1) * kDepth * size_of(dtype);
    TensorView broadcast = contiguous(base.data(), dtype, {4, 5});
    broadcast.stride[0] = 0;
    const std::map<std::string, TensorView> views = {{"swap12", transposed(plain, 1, 2)},
                                                     {"swap23", transposed(plain, 2, 3)},
                                                     {"swap13", transposed(plain, 1, 3)},
                                                     {"stepped", stepped},
                                                     {"broadcast", broadcast},
                                                     {"plain", plain}};
    SafetensorsWriter writer;
    for (const auto& [name, view] : views) writer.add(name, view);
    writer.write(path("strided.safetensors"));
    const auto file = SafetensorsFile::open(path("strided.safetensors"));
    for (const auto& [name, view] : views) {
      const TensorView back = file.tensor(name);
      EXPECT_EQ(shape_of(back), shape_of(view)) << name;
      EXPECT_TRUE(is_row_major(back)) << name;
      EXPECT_TRUE(packed(back) == packed(view)) << name;
    }
  }
}

TEST_F(Safetensors, WritesOffsetsBeyond32Bits) {
  // Address space without memory behind it, except for the pages touched.
  constexpr std::int64_t kFar = (std::int64_t{1} << 32) + 3;
  const std::size_t size = static_cast<std::size_t>(kFar) + 8;
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) GTEST_SKIP() << "no 4 GiB of address space";
  auto* data = static_cast<std::uint8_t*>(map);
  data[0] = 1;
  data[2] = 2;
  data[kFar] = 3;
  data[kFar + 2] = 4;
  TensorView view = contiguous(data, DType::f8_e4m3, {2, 2});
  view.stride = {kFar, 2};
  write_npy(path("far.npy"), view);
  munmap(map, size);
  EXPECT_EQ(packed(read_npy(path("far.npy"), DType::f8_e4m3).view), to_bytes("\1\2\3\4"));
}

TEST_F(Safetensors, ReadsOffsetsBeyond32Bits) {
  const std::string header = "{" + entry("a", "U8", "[5000000000]", "[0,5000000000]") + "," +
                             entry("b", "F32", "[1]", "[5000000000,5000000004]") + "}";
  const fs::path file = put("big.safetensors", file_of(header, 0));
  const auto end = static_cast<off_t>(8 + header.size() + 5'000'000'000);
  const int fd = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  float value = 1.5F;
  const bool sparse = pwrite(fd, &value, sizeof(value), end) == sizeof(value);  // a hole before it
  close(fd);
  if (!sparse) GTEST_SKIP() << "the file system takes no sparse file of 5 GB";
  const auto opened = SafetensorsFile::open(file);
  EXPECT_EQ(packed(opened.tensor("b")), packed(contiguous(&value, DType::f32, {1})));
}

TEST_F(Safetensors, HoldsEmptyTensorsAndScalars) {
  Bytes one = pattern(4);
  SafetensorsWriter writer;
  writer.add("empty", contiguous(nullptr, DType::f16, {2, 0, 3}));
  writer.add("scalar", contiguous(one.data(), DType::f32, {}));
  writer.add("zempty", contiguous(one.data(), DType::f8_e4m3, {0}));
  writer.write(path("x.safetensors"));
  const auto file = SafetensorsFile::open(path("x.safetensors"));
  EXPECT_EQ(shape_of(file.tensor("empty")), (Shape{2, 0, 3}));
  EXPECT_EQ(file.find("empty")->size, 0U);
  EXPECT_NE(file.tensor("empty").data, nullptr);
  EXPECT_EQ(file.tensor("scalar").rank, 0);
  EXPECT_EQ(packed(file.tensor("scalar")), one);
  EXPECT_EQ(shape_of(file.tensor("zempty")), Shape{0});

  SafetensorsWriter nothing;
  nothing.write(path("nothing.safetensors"));
  EXPECT_TRUE(SafetensorsFile::open(path("nothing.safetensors")).entries().empty());
}

TEST_F(Safetensors, CopiesUnalignedTensors) {
  for (std::size_t shift = 0; shift < 4; ++shift) {
    SCOPED_TRACE(shift);
    std::string header = "{" + entry("a", "F32", "[2]", "[0,8]") + "," +
                         entry("b", "BF16", "[2]", "[8,12]") + "," +
                         entry("c", "F8_E4M3", "[3]", "[12,15]") + "}";
    header.resize((header.size() + 7) / 8 * 8 + shift, ' ');
    const auto file = open(header, 15);
    const Bytes data = pattern(15);
    for (const char* name : {"a", "b", "c"}) {
      const TensorView view = file.tensor(name);
      const SafetensorsEntry* found = file.find(name);
      const std::size_t size = size_of(view.dtype);
      const auto* begin = data.data() + (found->data - file.find("a")->data);
      EXPECT_EQ(packed(view), Bytes(begin, begin + found->size)) << name;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % size, 0U) << name;
      EXPECT_EQ(view.data == found->data, shift % size == 0) << name << ": copied when needed only";
      EXPECT_EQ(file.tensor(name).data, view.data) << name << ": copied once";
    }
  }
}

TEST_F(Safetensors, CopiesOnceAmongThreads) {
  std::string header = "{" + entry("a", "F32", "[2]", "[0,8]") + "}";
  header.resize((header.size() + 7) / 8 * 8 + 1, ' ');
  const auto file = open(header, 8);
  std::array<void*, 8> seen{};
  std::vector<std::thread> threads;
  for (void*& data : seen) threads.emplace_back([&] { data = file.tensor("a").data; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<void*>(seen.begin(), seen.end()).size(), 1U);
}

TEST_F(Safetensors, ViewsSurviveAMove) {
  auto file = open("{" + entry("a", "F8_E4M3", "[3]", "[0,3]") + "}", 3);
  const TensorView view = file.tensor("a");
  const SafetensorsFile moved = std::move(file);
  EXPECT_EQ(packed(view), pattern(3));
  EXPECT_EQ(moved.tensor("a").data, view.data);
}

TEST_F(Safetensors, ListsForeignTypesButHandsOutNone) {
  struct Row {
    const char* dtype;
    std::size_t bytes_of_8;
  };
  constexpr Row kRows[] = {{"BOOL", 8},        {"U8", 8},      {"U16", 16},    {"I16", 16},
                           {"U32", 32},        {"I32", 32},    {"U64", 64},    {"I64", 64},
                           {"F64", 64},        {"C64", 64},    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
                           {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};
  for (const auto& [dtype, bytes] : kRows) {
    SCOPED_TRACE(dtype);
    const auto file =
        open("{" + entry("a", dtype, "[2,4]", "[0," + std::to_string(bytes) + "]") + "}", bytes);
    ASSERT_EQ(file.entries().size(), 1U);
    EXPECT_EQ(file.entries()[0].dtype, dtype);
    EXPECT_EQ(file.entries()[0].size, bytes);
    expect_refused(
        path("x.safetensors"),
        "tensor 'a' is " + std::string(dtype) + "; must be F32, F16, BF16, F8_E4M3, F8_E5M2 or I8",
        [&] { file.tensor("a"); });
  }
}

TEST_F(Safetensors, ListsHighRanksButHandsOutNone) {
  const auto file = open("{" + entry("a", "F16", "[1,1,2,1,1]", "[0,4]") + "}", 4);
  EXPECT_EQ(file.entries().at(0).shape, (Shape{1, 1, 2, 1, 1}));
  expect_refused(path("x.safetensors"),
                 "tensor 'a' has shape [1, 1, 2, 1, 1]; must have at most 4 dimensions",
                 [&] { file.tensor("a"); });
}

TEST_F(Safetensors, NamesTheTensorsItHas) {
  expect_refused(path("x.safetensors"), "has no tensor 'q'; it has none at all",
                 [&] { open("{}", 0).tensor("q"); });
  expect_refused(path("x.safetensors"), "has no tensor 'q'; it has 'k', 'v'", [&] {
    open("{" + entry("v", "F16", "[1]", "[0,2]") + "," + entry("k", "F16", "[1]", "[2,4]") + "}", 4)
        .tensor("q");
  });
  std::string many = "{";
  for (int i = 0; i < 25; ++i) {
    many += (i == 0 ? "" : ",") + entry("n" + std::to_string(10 + i), "U8", "[0]", "[0,0]");
  }
  expect_refused(path("x.safetensors"), "'n28', 'n29' and 5 more",
                 [&] { open(many + "}", 0).tensor("q"); });
}

TEST_F(Safetensors, ReadsOddButValidHeaders) {
  EXPECT_EQ(open("{ \"a\" :\n{\"data_offsets\":[0,1] , \"shape\":[ 1],\t\"dtype\":\"U8\"}}  ", 1)
                .entries()
                .size(),
            1U);
  EXPECT_EQ(
      open("{" + entry("\\u00e9\\\"\\u0000", "U8", "[1]", "[0,1]") + "}", 1).entries()[0].name,
      std::string("\xC3\xA9\"\0", 4));
  EXPECT_EQ(open("{" + entry("a", "U8", "[-0]", "[-0,0]") + "}", 0).entries()[0].shape, Shape{0});
  EXPECT_TRUE(open("{\"__metadata__\":{}}", 0).metadata().empty());
  // Data need not lie in the order of the header.
  const auto file = open(
      "{" + entry("b", "U8", "[2]", "[1,3]") + "," + entry("a", "U8", "[1]", "[0,1]") + "}", 3);
  EXPECT_EQ(file.find("b")->data, file.find("a")->data + 1);
  // An empty tensor lies where another begins, whatever their names.
  const std::string a = entry("a", "U8", "[0]", "[0,0]"), b = entry("b", "U8", "[1]", "[0,1]"),
                    c = entry("c", "U8", "[0]", "[0,0]"), d = entry("d", "U8", "[0]", "[1,1]");
  EXPECT_EQ(open("{" + a + "," + b + "," + c + "," + d + "}", 1).entries().size(), 4U);
}

TEST_F(Safetensors, RefusesEveryTruncation) {
  Bytes data = pattern(24);
  SafetensorsWriter writer;
  writer.add("layer.q", contiguous(data.data(), DType::f32, {2, 3}));
  writer.add("layer.k", contiguous(data.data(), DType::f8_e4m3, {5}));
  writer.set_metadata({{"k", "v"}});
  writer.write(path("whole.safetensors"));
  const Bytes whole = get(path("whole.safetensors"));
  ASSERT_EQ(SafetensorsFile::open(path("whole.safetensors")).entries().size(), 2U);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    expect_bytes_damaged(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)),
                         length < 8 ? "bytes long; a safetensors file begins" : "");
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  expect_bytes_damaged(longer, "has 30 bytes of data; its tensors cover 29");
}

TEST_F(Safetensors, OpensOrRefusesAnyChangedByte) {
  const Bytes whole =
      file_of("{\"__metadata__\":{\"a\":\"b\"}," + entry("q", "F32", "[2]", "[0,8]") + "," +
                  entry("k", "BF16", "[1,2]", "[8,12]") + "}",
              12);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int value : {0x00, 0x20, 0x22, 0x30, 0x39, 0x7B, 0x80, 0xFF}) {
      Bytes changed = whole;
      changed[i] = static_cast<std::byte>(value);
      try {
        const auto header = parse_safetensors("changed", changed);
        std::size_t covered = 0;
        for (const auto& found : header.entries) covered += found.size;
        EXPECT_EQ(covered, 12U) << "byte " << i << " = " << value;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::io);
      }
    }
  }
}

TEST_F(Safetensors, RefusesDamagedPrefix) {
  expect_bytes_damaged({}, "is 0 bytes long; a safetensors file begins with a header length");
  expect_bytes_damaged(file_of("", 0), "the header does not begin with '{'");
  expect_bytes_damaged(to_bytes("version https://git-lfs.github.com/spec/v1\n"),
                       "at most 100000000 are accepted");
  Bytes bytes = file_of("{}", 3);
  bytes[0] = std::byte{6};
  expect_bytes_damaged(bytes, "says that its header has 6 bytes; only 5 follow");
  std::fill_n(bytes.begin(), 8, std::byte{0xFF});
  expect_bytes_damaged(bytes, "says that its header has 18446744073709551615 bytes; at most");
}

TEST_F(Safetensors, RefusesWhatIsNotTheRightJson) {
  expect_damaged("[]", 0, "the header does not begin with '{'");
  expect_damaged(" {}", 0, "the header does not begin with '{'");
  expect_damaged("\xEF\xBB\xBF{}", 0, "the header does not begin with '{'");
  expect_damaged("{", 0, "the header is not valid JSON at its byte");
  expect_damaged("{\"a\"}", 0, "the header is not valid JSON at its byte 5");
  expect_damaged("{} x", 0, "the header is not valid JSON at its byte 4");
  expect_damaged("{}{}", 0, "the header is not valid JSON at its byte 3");
  expect_damaged(std::string("{}\0\0", 4), 0, "the header is not valid JSON at its byte 3");
  expect_damaged("{/* comment */}", 0, "the header is not valid JSON at its byte 2");
  expect_damaged("{\"a\xFF\":{}}", 0, "the header is not valid JSON at its byte 4");
  expect_damaged("{\"a\\ud800\":{}}", 0, "the header is not valid JSON at its byte");
  expect_damaged("{\"a\":1e999}", 0, "the header is not valid JSON at its byte");
  expect_damaged("{\"a\":1}", 0, "header entry 'a' is the number 1; must be an object");
  expect_damaged("{\"a\":null}", 0, "header entry 'a' is null; must be an object");
  expect_damaged("{\"a\":[]}", 0, "header entry 'a' is a list; must be an object");
  expect_damaged("{\"a\":\"b\"}", 0, "header entry 'a' is a string; must be an object");
  expect_damaged("{\"__metadata__\":3}", 0, "'__metadata__' is the number 3; must be an object");
  expect_damaged("{\"__metadata__\":{\"k\":3}}", 0, "entry 'k' is the number 3; must be a string");
  expect_damaged("{\"__metadata__\":{\"k\":{}}}", 0, "entry 'k' is an object; must be a string");
}

TEST_F(Safetensors, RefusesDeepNestingAtTheFirstLevelThatIsWrong) {
  constexpr int kDepth = 1'000'000;
  const std::string lists(kDepth, '[');
  std::string objects;
  for (int i = 0; i < kDepth; ++i) objects += "{\"a\":";
  expect_damaged("{\"a\":" + lists, 0, "header entry 'a' is a list; must be an object");
  expect_damaged("{\"a\":{\"shape\":" + lists, 0, "tensor 'a': shape holds a list");
  expect_damaged(objects, 0, "tensor 'a': has the key 'a'");
}

TEST_F(Safetensors, RefusesDamagedTensors) {
  const auto damaged = [&](const std::string& tensor, const std::string& fragment) {
    expect_damaged("{\"a\":{" + tensor + "}}", 8, "tensor 'a'" + fragment);
  };
  const std::string dtype = "\"dtype\":\"F32\"", shape = "\"shape\":[2]",
                    offsets = "\"data_offsets\":[0,8]", comma = ",";
  damaged(shape + comma + offsets, " has no dtype");
  damaged(dtype + comma + offsets, " has no shape");
  damaged(dtype + comma + shape, " has no data_offsets");
  damaged("", " has no dtype");
  damaged(dtype + comma + dtype, ": dtype appears twice");
  damaged(shape + comma + shape, ": shape appears twice");
  damaged(offsets + comma + offsets, ": data_offsets appears twice");
  damaged("\"strides\":[1]", ": has the key 'strides'; must have dtype, shape and data_offsets");
  damaged("\"dtype\":7", ": dtype is the number 7; must be a string");
  damaged("\"dtype\":[]", ": dtype is a list; must be a string");
  damaged("\"shape\":7", ": shape is the number 7; must be a list of integers");
  damaged("\"shape\":\"2\"", ": shape is a string; must be a list of integers");
  damaged("\"shape\":{}", ": shape is an object; must be a list of integers");
  damaged("\"shape\":[-3]", ": shape holds the number -3; must hold integers of 0 to 2^63 - 1");
  damaged("\"shape\":[2.0]", ": shape holds the number 2.0; must hold integers");
  damaged("\"shape\":[true]", ": shape holds a boolean; must hold integers");
  damaged("\"shape\":[\"2\"]", ": shape holds a string; must hold integers");
  damaged("\"shape\":[null]", ": shape holds null; must hold integers");
  damaged("\"shape\":[9223372036854775808]", ": shape holds the number 9223372036854775808");
  damaged("\"shape\":[99999999999999999999]", ": shape holds the number 99999999999999999999");
  damaged("\"data_offsets\":[-1,8]", ": data_offsets holds the number -1; must hold integers");
  damaged("\"data_offsets\":[0,[8]]", ": data_offsets holds a list; must hold integers");
  damaged("\"data_offsets\":[0,4,8]", ": data_offsets has over 2 numbers");
  damaged(dtype + comma + shape + ",\"data_offsets\":[8]", ": data_offsets must have 2 numbers");
  std::string many = "\"shape\":[1";
  for (int i = 1; i < 65; ++i) many += ",1";
  damaged(many + "]", ": shape has over 64 dimensions");
}

TEST_F(Safetensors, RefusesImpossibleSizes) {
  const auto damaged = [&](const std::string& dtype, const std::string& shape,
                           const std::string& offsets, const std::string& fragment) {
    expect_damaged("{" + entry("a", dtype, shape, offsets) + "}", 8, fragment);
  };
  damaged("F32", "[2]", "[8,0]", "tensor 'a': data_offsets [8, 0] end before they begin");
  damaged("F32", "[2]", "[1,9]", "tensor 'a': data_offsets [1, 9] end after the 8 bytes of data");
  damaged("F32", "[2]", "[0,18446744073709551615]",
          "tensor 'a': data_offsets [0, 18446744073709551615] end after the 8");
  damaged("F32", "[3]", "[0,8]",
          "tensor 'a': data_offsets [0, 8] span 8 bytes; F32 of shape [3] takes 12");
  damaged("BF16", "[3]", "[0,8]",
          "tensor 'a': data_offsets [0, 8] span 8 bytes; BF16 of shape [3] takes 6");
  damaged("F32", "[]", "[0,8]",
          "tensor 'a': data_offsets [0, 8] span 8 bytes; F32 of shape [] takes 4");
  damaged("F32", "[4294967296,4294967296]", "[0,0]",
          "tensor 'a' has shape [4294967296, 4294967296]; must");
  damaged("F32", "[4611686018427387904,4,0]", "[0,0]", "must have at most 144115188075855871");
  damaged("U8", "[0,4611686018427387904,4]", "[0,0]", "must have at most 144115188075855871");
  damaged("F64", "[144115188075855871]", "[0,8]", "takes 1152921504606846968");
  damaged("F4", "[3]", "[0,2]", "tensor 'a' has 12 bits; must be whole bytes");
  damaged("F128", "[2]", "[0,8]", "tensor 'a' has dtype 'F128', which safetensors does not define");
  damaged("f32", "[2]", "[0,8]", "tensor 'a' has dtype 'f32', which safetensors does not define");
  damaged("", "[2]", "[0,8]", "tensor 'a' has dtype '', which safetensors does not define");
}

TEST_F(Safetensors, RefusesOverlapsGapsAndDuplicates) {
  const std::string a = entry("a", "F32", "[1]", "[0,4]");
  expect_damaged("{" + a + "," + entry("b", "F32", "[1]", "[2,6]") + "}", 6,
                 "tensors 'a' and 'b' overlap at data offset 2");
  expect_damaged("{" + a + "," + entry("b", "F32", "[1]", "[0,4]") + "}", 4, "overlap");
  expect_damaged("{" + a + "," + entry("b", "F32", "[0]", "[2,2]") + "}", 4,
                 "tensors 'a' and 'b' overlap at data offset 2");
  expect_damaged("{" + a + "," + entry("b", "F32", "[1]", "[6,10]") + "}", 10,
                 "data bytes 4 to 6, before tensor 'b', belong to no tensor");
  expect_damaged("{" + entry("b", "F32", "[1]", "[2,6]") + "}", 6, "data bytes 0 to 2, before");
  expect_damaged("{" + a + "}", 5, "has 5 bytes of data; its tensors cover 4");
  expect_damaged("{}", 5, "has 5 bytes of data; its tensors cover 0");
  expect_damaged("{" + a + "," + entry("a", "F32", "[1]", "[4,8]") + "}", 8,
                 "tensor 'a' appears twice");
  expect_damaged("{" + a + "," + entry("\\u0061", "F32", "[1]", "[4,8]") + "}", 8,
                 "tensor 'a' appears twice");
  expect_damaged("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "'__metadata__' appears twice");
  expect_damaged("{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0, "entry 'k' appears twice");
}

TEST_F(Safetensors, QuotesHostileNamesOnOneShortLine) {
  const std::string name = "\\n\\u0007" + std::string(100'000, 'x');
  expect_damaged("{\"" + name + "\":1}", 0, "header entry '\\x0a\\x07xxx");
  const std::string sentence = sentence_of(
      ErrorCode::io, [&] { parse_safetensors("f", file_of("{\"" + name + "\":1}", 0)); });
  EXPECT_LT(sentence.size(), 300U);
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += i % 2 == 0 ? "\xE2\x82\xAC" : "\xC3\xA9";
  for (const char* shift : {"", "x", "xx"})
    expect_damaged("{\"" + (shift + wide) + "\":1}", 0, "...");
}

TEST_F(Safetensors, WriterRefusesBadTensors) {
  Bytes data = pattern(64);
  const TensorView good = contiguous(data.data(), DType::f32, {4});
  SafetensorsWriter writer;
  const auto refused = [&](const std::string& name, const TensorView& view,
                           const std::string& fragment) {
    const std::string sentence =
        sentence_of(ErrorCode::invalid_argument, [&] { writer.add(name, view); });
    EXPECT_NE(sentence.find("SafetensorsWriter::add: tensor "), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(fragment), std::string::npos) << sentence;
  };
  writer.add("twice", good);
  refused("twice", good, "'twice' was added before; names are unique");
  refused("__metadata__", good, "has a name that the format reserves");
  refused("\xFF", good, "'\\xff' has a name that is not UTF-8");
  refused("\xC0\x80", good, "not UTF-8");
  refused("\xED\xA0\x80", good, "not UTF-8");
  refused("x", TensorView{}, "'x' has a null data pointer; must point to elements");
  TensorView bad = good;
  bad.device.kind = Device::Kind::cuda;
  refused("x", bad, "is in GPU memory; must be in CPU memory");
  bad = good;
  bad.rank = 5;
  refused("x", bad, "has rank 5; must be 0 to 4");
  bad = good;
  bad.shape[0] = -1;
  refused("x", bad, "has shape [-1]; no dimension may be negative");
  bad = contiguous(data.data(), DType::f32, {1, 1});
  bad.shape = {std::int64_t{1} << 32, std::int64_t{1} << 32};
  refused("x", bad, "has shape [4294967296, 4294967296]; must have at most");
  const std::string sentence = sentence_of(ErrorCode::invalid_argument, [&] {
    writer.set_metadata({{"k", "\x80"}});
  });
  EXPECT_NE(sentence.find("entry 'k' is not UTF-8"), std::string::npos) << sentence;
}

TEST_F(Safetensors, WriterRefusesAHeaderThatNoReaderAccepts) {
  SafetensorsWriter writer;
  writer.set_metadata({{"k", std::string(kMaxSafetensorsHeader, 'x')}});
  expect_refused(path("x.safetensors"), "cannot write: the header would have 1000000",
                 [&] { writer.write(path("x.safetensors")); });
  EXPECT_TRUE(listing().empty());
}

TEST_F(Safetensors, CanReplaceTheFileItReadsFrom) {
  const fs::path file = path("x.safetensors");
  Bytes data = pattern(40);
  SafetensorsWriter first;
  first.add("a", contiguous(data.data(), DType::bf16, {4, 5}));
  first.write(file);

  const auto opened = SafetensorsFile::open(file);
  SafetensorsWriter second;
  second.add("a", transposed(opened.tensor("a"), 0, 1));
  second.write(file);
  EXPECT_EQ(packed(opened.tensor("a")), data) << "the old mapping stays";
  EXPECT_EQ(packed(SafetensorsFile::open(file).tensor("a")),
            packed(transposed(contiguous(data.data(), DType::bf16, {4, 5}), 0, 1)));
}

// ------------------------------------------------------------------------- files in general

using Files = IoTest;

TEST_F(Files, MappedFileSaysWhyItCannotOpen) {
  expect_refused(path("absent"), "cannot open for reading: No such file or directory",
                 [&] { MappedFile::open(path("absent")); });
  expect_refused(folder_, "is a directory; must be a regular file",
                 [&] { MappedFile::open(folder_); });
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  expect_refused(path("fifo"), "is a device, pipe or socket; must be a regular file",
                 [&] { MappedFile::open(path("fifo")); });
  EXPECT_TRUE(MappedFile::open(put("empty", {})).bytes().empty());
}

TEST_F(Files, MappedFileMoves) {
  MappedFile a = MappedFile::open(put("a", to_bytes("first")));
  const MappedFile b = MappedFile::open(put("b", to_bytes("second")));
  const std::byte* data = a.bytes().data();
  MappedFile c = std::move(a);
  EXPECT_EQ(c.bytes().data(), data);
  EXPECT_EQ(c.name(), path("a").string());
  c = MappedFile::open(path("b"));
  EXPECT_TRUE(std::equal(c.bytes().begin(), c.bytes().end(), b.bytes().begin(), b.bytes().end()));
}

TEST_F(Files, NothingAppearsWithoutCommit) {
  const fs::path kept = put("kept", to_bytes("old"));
  for (const char* name : {"kept", "new"}) {
    AtomicFile file(path(name));
    file.write("abc", 3);
    EXPECT_EQ(listing().size(), 2U) << "the temporary is beside the target";
  }
  EXPECT_EQ(listing(), std::set<std::string>{"kept"});
  EXPECT_EQ(get(kept), to_bytes("old"));
  AtomicFile file(kept);
  file.write("new", 3);
  EXPECT_EQ(get(kept), to_bytes("old"));
  file.commit();
  EXPECT_EQ(get(kept), to_bytes("new"));
  EXPECT_EQ(listing(), std::set<std::string>{"kept"});
}

TEST_F(Files, KeepsPermissionsAndSymbolicLinks) {
  const fs::path target = put("target", to_bytes("old"));
  ASSERT_EQ(chmod(target.c_str(), 0640), 0);
  fs::create_symlink("target", path("link"));
  AtomicFile file(path("link"));
  file.write("new", 3);
  file.commit();
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(get(target), to_bytes("new"));
  struct stat info {};
  ASSERT_EQ(stat(target.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0640U);

  const mode_t mask = umask(027);
  AtomicFile fresh(path("fresh"));
  umask(mask);
  fresh.commit();
  ASSERT_EQ(stat(path("fresh").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0640U) << "0666 cut by the umask";
}

TEST_F(Files, WritesToTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  AtomicFile file("plain");
  file.commit();
  fs::current_path(before);
  EXPECT_EQ(listing(), std::set<std::string>{"plain"});
}

TEST_F(Files, TakesTheLongestName) {
  const std::string name(255, 'n');
  AtomicFile file(path(name));
  file.commit();
  EXPECT_EQ(listing(), std::set<std::string>{name});
}

/// Both writers, to be run against one path.
std::vector<std::function<void(const fs::path&)>> writers(const TensorView& view) {
  SafetensorsWriter writer;
  writer.add("a", view);
  return {[writer](const fs::path& file) { writer.write(file); },
          [view](const fs::path& file) { write_npy(file, view); }};
}

TEST_F(Files, WritersRefuseImpossibleTargets) {
  Bytes data = pattern(8);
  fs::create_directory(path("folder"));
  put("file", to_bytes("old"));
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  const auto before = listing();
  for (const auto& write : writers(contiguous(data.data(), DType::f32, {2}))) {
    expect_refused(path("folder"), "cannot write: is a directory", [&] { write(path("folder")); });
    expect_refused(path("fifo"), "cannot write: is a device, pipe or socket",
                   [&] { write(path("fifo")); });
    expect_refused(path("absent") / "x", "cannot create a temporary file beside it: No such file",
                   [&] { write(path("absent") / "x"); });
    expect_refused(path("file") / "x", "cannot create a temporary file beside it: Not a directory",
                   [&] { write(path("file") / "x"); });
    expect_refused(path(std::string(256, 'n')), "File name too long",
                   [&] { write(path(std::string(256, 'n'))); });
    EXPECT_EQ(listing(), before);
    EXPECT_TRUE(fs::is_empty(path("folder")));
  }
}

/// While it lives, no file of this process grows beyond `limit` bytes: a full disk, in effect.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t limit) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{limit, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(Files, WritersCleanUpWhenTheDiskIsFull) {
  Bytes data = pattern(1 << 20);
  const TensorView plain = contiguous(data.data(), DType::f32, {512, 512});
  put("old", to_bytes("old"));
  for (const TensorView& view : {plain, transposed(plain, 0, 1)}) {
    for (const auto& write : writers(view)) {
      for (const char* name : {"old", "new"}) {
        std::string sentence;
        {
          const FileSizeLimit limit(500'000);
          sentence = sentence_of(ErrorCode::io, [&] { write(path(name)); });
        }
        EXPECT_EQ(sentence, path(name).string() + ": cannot write: File too large");
        EXPECT_EQ(listing(), std::set<std::string>{"old"});
        EXPECT_EQ(get(path("old")), to_bytes("old"));
      }
    }
  }
}

// --------------------------------------------------------------------------------------- npy

class Npy : public IoTest {
 protected:
  /// A file of version `major`.0 with this dictionary and `data_bytes` of data.
  static Bytes file_of(const std::string& dict, std::size_t data_bytes, int major = 1) {
    std::string text = "\x93NUMPY";
    text += static_cast<char>(major);
    text += '\0';
    for (int i = 0; i < (major == 1 ? 2 : 4); ++i) {
      text += static_cast<char>(dict.size() >> (8 * i) & 0xFF);
    }
    Bytes bytes = to_bytes(text + dict);
    const Bytes data = pattern(data_bytes);
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
  }

  static std::string dict(const std::string& descr, const std::string& shape) {
    return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  }

  void expect_damaged(const Bytes& bytes, const std::string& fragment,
                      std::optional<DType> as = {}) const {
    const fs::path file = put("x.npy", bytes);
    expect_refused(file, fragment, [&] { read_npy(file, as); });
  }
};

TEST_F(Npy, RoundTripsEveryDType) {
  Bytes base = pattern(2 * 3 * 4 * 5 * 4);
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    const TensorView plain = contiguous(base.data(), dtype, {2, 3, 4, 5});
    TensorView broadcast = plain;
    broadcast.stride[1] = 0;
    for (const TensorView& view :
         {plain, transposed(plain, 1, 2), transposed(plain, 0, 3), broadcast,
          contiguous(base.data(), dtype, {7}), contiguous(base.data(), dtype, {2, 9}),
          contiguous(base.data(), dtype, {}), contiguous(base.data(), dtype, {0}),
          contiguous(nullptr, dtype, {3, 0, 2})}) {
      write_npy(path("x.npy"), view);
      const NpyArray back = read_npy(path("x.npy"), dtype);
      EXPECT_EQ(back.view.dtype, dtype);
      EXPECT_EQ(shape_of(back.view), shape_of(view));
      EXPECT_TRUE(is_row_major(back.view));
      EXPECT_NE(back.view.data, nullptr);
      EXPECT_EQ(packed(back.view), packed(view));
      EXPECT_FALSE(back.aligned) << "written aligned: nothing is copied";
    }
  }
}

TEST_F(Npy, WritesWhatNumpyWrites) {
  Bytes data = pattern(24);
  struct Row {
    DType dtype;
    std::vector<std::int64_t> shape;
    std::string dict;
  };
  const Row rows[] = {
      {DType::f32, {2, 3}, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"},
      {DType::f16, {3}, "{'descr': '<f2', 'fortran_order': False, 'shape': (3,), }"},
      {DType::bf16, {}, "{'descr': '<u2', 'fortran_order': False, 'shape': (), }"},
      {DType::f8_e4m3,
       {1, 1, 2, 3},
       "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1, 2, 3), }"},
      {DType::f8_e5m2, {0}, "{'descr': '|u1', 'fortran_order': False, 'shape': (0,), }"},
      {DType::i8, {2}, "{'descr': '|i1', 'fortran_order': False, 'shape': (2,), }"},
  };
  for (const Row& row : rows) {
    TensorView view = contiguous(data.data(), row.dtype, {});
    view.rank = static_cast<int>(row.shape.size());
    std::copy(row.shape.begin(), row.shape.end(), view.shape.begin());
    for (int i = view.rank - 1, stride = 1; i >= 0; --i) {
      view.stride[i] = stride;
      stride *= static_cast<int>(view.shape[i]);
    }
    write_npy(path("x.npy"), view);
    std::string text = row.dict;
    text.resize(128 - 10 - 1, ' ');
    Bytes expected = file_of(text + "\n", 0);
    ASSERT_EQ(expected.size(), 128U);
    const auto count = static_cast<std::size_t>(view.numel()) * size_of(row.dtype);
    expected.insert(expected.end(), data.begin(),
                    data.begin() + static_cast<std::ptrdiff_t>(count));
    EXPECT_EQ(get(path("x.npy")), expected) << row.dict;
  }
}

TEST_F(Npy, ReadsAnyVersionOrderAndSpacing) {
  const std::string dicts[] = {
      dict("<f4", "(2, 3)"),
      "{'shape': (2, 3), 'descr': '<f4', 'fortran_order': False}",
      "{\"fortran_order\":False,\"shape\":(2,3),\"descr\":\"<f4\"}",
      " \t{ 'descr' :\n'<f4' , 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , } \n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }   \n",
  };
  for (const std::string& text : dicts) {
    for (int major = 1; major <= 3; ++major) {
      SCOPED_TRACE(text);
      const NpyArray array = read_npy(put("x.npy", file_of(text, 24, major)));
      EXPECT_EQ(shape_of(array.view), (Shape{2, 3}));
      EXPECT_EQ(array.view.dtype, DType::f32);
      EXPECT_EQ(packed(array.view), pattern(24));
    }
  }
}

TEST_F(Npy, RawCodesNeedATypeFromTheCaller) {
  struct Row {
    std::string descr;
    std::size_t bytes;
    std::vector<DType> allowed;
    std::string rule;
  };
  const std::vector<DType> fp8 = {DType::f8_e4m3, DType::f8_e5m2};
  const Row rows[] = {
      {"<u2", 2, {DType::bf16}, "bf16"},     {"<V2", 2, {DType::bf16}, "bf16"},
      {"|V2", 2, {DType::bf16}, "bf16"},     {"|u1", 1, fp8, "f8_e4m3 or f8_e5m2"},
      {"|V1", 1, fp8, "f8_e4m3 or f8_e5m2"}, {"<V1", 1, fp8, "f8_e4m3 or f8_e5m2"},
      {"<f1", 1, fp8, "f8_e4m3 or f8_e5m2"}, {"|f1", 1, fp8, "f8_e4m3 or f8_e5m2"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.descr);
    const Bytes bytes = file_of(dict(row.descr, "(5,)"), 5 * row.bytes);
    expect_damaged(bytes, "holds '" + row.descr + "', raw codes");
    expect_damaged(bytes, "the type they stand for must be given: " + row.rule);
    for (const DType dtype : kAllDTypes) {
      if (std::count(row.allowed.begin(), row.allowed.end(), dtype) == 0) {
        expect_damaged(bytes, "cannot be read as " + std::string(dtype_name(dtype)), dtype);
        continue;
      }
      const NpyArray array = read_npy(put("x.npy", bytes), dtype);
      EXPECT_EQ(array.view.dtype, dtype);
      EXPECT_EQ(packed(array.view), pattern(5 * row.bytes));
    }
  }
}

TEST_F(Npy, NamedTypesMustAgreeWithTheCaller) {
  const Bytes f4 = file_of(dict("<f4", "(1,)"), 4);
  EXPECT_EQ(read_npy(put("x.npy", f4), DType::f32).view.dtype, DType::f32);
  expect_damaged(f4, "holds '<f4', which is f32; cannot be read as bf16", DType::bf16);
  const Bytes f2 = file_of(dict("<f2", "(1,)"), 2);
  EXPECT_EQ(read_npy(put("x.npy", f2)).view.dtype, DType::f16);
  expect_damaged(f2, "holds '<f2', which is f16; cannot be read as bf16", DType::bf16);
}

TEST_F(Npy, CopiesUnalignedData) {
  for (std::size_t shift = 0; shift < 4; ++shift) {
    std::string text = dict("<f4", "(3,)");
    text.resize(118 + shift, ' ');
    const NpyArray array = read_npy(put("x.npy", file_of(text, 12)));
    EXPECT_EQ(array.aligned != nullptr, shift != 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.view.data) % 4, 0U);
    EXPECT_EQ(packed(array.view), pattern(12));
  }
}

TEST_F(Npy, RefusesOtherTypesAndOrders) {
  expect_damaged(file_of(dict("<f8", "(1,)"), 8), "'<f8', float64; must be converted to float32");
  expect_damaged(file_of(dict(">f4", "(1,)"), 4), "'>f4', big-endian; must be little-endian");
  for (const char* descr : {"<i4", "<i8", "|b1", "<c8", "|O", "<U3", "", "f4", "=f4", "<f44"}) {
    expect_damaged(file_of(dict(descr, "(1,)"), 4),
                   "holds '" + std::string(descr) + "'; must be '<f4', '<f2', '|i1', or raw codes");
  }
  expect_damaged(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24),
                 "is in Fortran order; must be in C order");
  expect_damaged(file_of("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4),
                 "descr is a structured type");
}

TEST_F(Npy, RefusesImpossibleSizes) {
  const auto damaged = [&](const std::string& shape, std::size_t bytes, const std::string& text) {
    expect_damaged(file_of(dict("<f4", shape), bytes), text);
  };
  damaged("(2, 3)", 23, "has 23 bytes of data; '<f4' of shape [2, 3] takes 24");
  damaged("(2, 3)", 25, "has 25 bytes of data; '<f4' of shape [2, 3] takes 24");
  damaged("()", 0, "has 0 bytes of data; '<f4' of shape [] takes 4");
  damaged("(1, 1, 1, 1, 1)", 4, "has shape [1, 1, 1, 1, 1]; must have at most 4 dimensions");
  damaged("(-1,)", 4, "shape has a negative dimension");
  damaged("(9223372036854775808,)", 4, "shape has a dimension over 2^63 - 1");
  damaged("(99999999999999999999999,)", 4, "shape has a dimension over 2^63 - 1");
  damaged("(9223372036854775807,)", 4, "must have at most 144115188075855871 elements");
  damaged("(4294967296, 4294967296)", 0, "has shape [4294967296, 4294967296]; must have at most");
  damaged("(4611686018427387904, 4, 0)", 0, "must have at most 144115188075855871 elements");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1,";
  damaged(many + ")", 4, "shape has over 64 dimensions");
}

TEST_F(Npy, RefusesDamagedHeaders) {
  expect_damaged({}, "is not a .npy file: it does not begin with \\x93NUMPY");
  expect_damaged(to_bytes("PK\3\4 a .npz archive"), "is not a .npy file");
  Bytes bytes = file_of(dict("<f4", "(1,)"), 4);
  bytes[6] = std::byte{4};
  expect_damaged(bytes, "has .npy version 4.0; must be 1.0, 2.0 or 3.0");
  bytes[6] = std::byte{1};
  bytes[7] = std::byte{1};
  expect_damaged(bytes, "has .npy version 1.1; must be 1.0, 2.0 or 3.0");
  bytes[7] = std::byte{0};
  bytes[9] = std::byte{0xFF};
  expect_damaged(bytes, "only 62 follow");
  bytes = file_of(dict("<f4", "(1,)"), 4, 2);
  bytes[11] = std::byte{0xFF};
  expect_damaged(bytes, "bytes; at most 1048576 are accepted");
}

TEST_F(Npy, RefusesWhatIsNotTheDictionary) {
  const std::pair<std::string, std::string> rows[] = {
      {"", "at its byte 1; expected the dictionary's '{'"},
      {"[]", "at its byte 1; expected the dictionary's '{'"},
      {"{}", "the header has no key 'descr'"},
      {"{'descr': '<f4'}", "the header has no key 'fortran_order'"},
      {"{'descr': '<f4', 'fortran_order': False}", "the header has no key 'shape'"},
      {"{'descr': '<f4', 'descr': '<f4'}", "the header has the key 'descr' twice"},
      {"{'fortran_order': False, 'fortran_order': False}", "the key 'fortran_order' twice"},
      {"{'shape': (), 'shape': ()}", "the header has the key 'shape' twice"},
      {"{'strides': ()}", "the header has the key 'strides'; must have descr"},
      {"{descr: '<f4'}", "at its byte 2; expected a key in quotes"},
      {"{,}", "at its byte 2; expected a key in quotes"},
      {"{'descr' '<f4'}", "at its byte 10; expected ':'"},
      {"{'descr': <f4}", "expected a type in quotes"},
      {"{'descr': '<f4", "expected the closing quote"},
      {"{'descr': '<f4\"}", "expected the closing quote"},
      {"{'descr': '<f\\x34'}", "expected a plain ASCII character"},
      {"{'descr': '<f\xFF'}", "expected a plain ASCII character"},
      {"{'descr': '<f4' 'shape': ()}", "expected ',' or '}'"},
      {"{'fortran_order': false}", "expected True or False"},
      {"{'fortran_order': 0}", "expected True or False"},
      {"{'fortran_order': Fals", "expected True or False"},
      {"{'fortran_order': Falsey}", "expected ',' or '}'"},
      {"{'shape': 3}", "expected the shape's '('"},
      {"{'shape': [3]}", "expected the shape's '('"},
      {"{'shape': (3)}", "expected ',' (Python reads (3) as a number)"},
      {"{'shape': (3 4)}", "expected ',' or ')'"},
      {"{'shape': (,)}", "expected a whole number"},
      {"{'shape': (3,,)}", "expected a whole number"},
      {"{'shape': (x,)}", "expected a whole number"},
      {"{'shape': (1.5,)}", "expected ',' or ')'"},
      {"{'shape': (3,", "expected a whole number"},
      {"{'shape': ((3,),)}", "expected a whole number"},
      {dict("<f4", "()") + "x", "expected nothing after the dictionary"},
      {dict("<f4", "()") + '\0', "expected nothing after the dictionary"},
      {dict("<f4", "()") + "{}", "expected nothing after the dictionary"},
  };
  for (const auto& [text, fragment] : rows) {
    SCOPED_TRACE(text);
    const Bytes bytes = file_of(text, 0);
    expect_damaged(bytes, fragment);
    expect_refused("heap", fragment, [&] { parse_npy_header("heap", bytes); });
  }
  expect_damaged(file_of(std::string(60'000, '{'), 0), "expected a key in quotes");
  expect_damaged(file_of("{'shape': " + std::string(60'000, '('), 0), "expected a whole number");
}

TEST_F(Npy, RefusesEveryTruncation) {
  for (int major = 1; major <= 3; ++major) {
    const Bytes whole = file_of(dict("<f4", "(2, 3)"), 24, major);
    ASSERT_EQ(packed(read_npy(put("whole.npy", whole)).view), pattern(24));
    for (std::size_t length = 0; length < whole.size(); ++length) {
      SCOPED_TRACE(length);
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      const char* fragment = length < 6                   ? "is not a .npy file"
                             : length < 12                ? ""
                             : length < whole.size() - 24 ? "follow"
                                                          : "bytes of data; '<f4' of shape [2, 3]";
      expect_damaged(cut, fragment);
      if (length >= whole.size() - 24) continue;  // the header is whole
      expect_refused("heap", fragment, [&] { parse_npy_header("heap", cut); });
    }
  }
}

TEST_F(Npy, ReadsOrRefusesAnyChangedByte) {
  const Bytes whole = file_of(dict("<f4", "(2, 3)"), 24);
  for (std::size_t i = 0; i < whole.size() - 24; ++i) {
    for (const int value : {0x00, 0x20, 0x22, 0x27, 0x29, 0x30, 0x39, 0x7D, 0x80, 0xFF}) {
      Bytes changed = whole;
      changed[i] = static_cast<std::byte>(value);
      try {
        const NpyArray array = read_npy(put("x.npy", changed));
        EXPECT_EQ(packed(array.view).size(), array.file.bytes().size() - whole.size() + 24);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::io);
      }
    }
  }
}

TEST_F(Npy, WriterRefusesBadViews) {
  const auto refused = [&](const TensorView& view, const std::string& expected) {
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { write_npy(path("x.npy"), view); }),
              "write_npy: view " + expected);
  };
  float value = 0;
  refused(TensorView{}, "has a null data pointer; must point to elements");
  TensorView view = contiguous(&value, DType::f32, {1});
  view.device.kind = Device::Kind::cuda;
  refused(view, "is in GPU memory; must be in CPU memory");
  view = contiguous(&value, DType::f32, {1});
  view.rank = -1;
  refused(view, "has rank -1; must be 0 to 4");
  view = contiguous(&value, DType::f32, {1});
  view.shape[0] = -2;
  refused(view, "has shape [-2]; no dimension may be negative");
  EXPECT_TRUE(listing().empty());
}

}  // namespace
}  // namespace octavo::io
