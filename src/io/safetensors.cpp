// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "io/atomic_file.h"
#include "io/row_major.h"
#include "io/sentence.h"
#include "octavo/error.h"

namespace octavo::io {

static_assert(std::endian::native == std::endian::little,
              "safetensors data are little-endian and are used as they lie in the file");

namespace {

constexpr std::size_t kMaxNamesListed = 20;
constexpr std::size_t kPrefix = 8;  // the header's length, u64, little-endian

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, sentence);
}

/// Tensors in the order of their data: wide elements first, so that each stays aligned.
using Placed = std::pair<std::string_view, const TensorView*>;

std::vector<Placed> placed(const std::map<std::string, TensorView>& tensors) {
  std::vector<Placed> order;
  order.reserve(tensors.size());
  for (const auto& [name, view] : tensors) order.emplace_back(name, &view);
  std::stable_sort(order.begin(), order.end(), [](const Placed& a, const Placed& b) {
    return size_of(a.second->dtype) > size_of(b.second->dtype);
  });
  return order;
}

std::string json_text(std::string_view text) { return nlohmann::json(text).dump(); }

/// Written by hand: a JSON object of the library would sort its keys, and readers like them in the
/// order of the data.
std::string header_json(const std::string& file, const std::vector<Placed>& order,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += json_text(kMetadataKey) + ":" + nlohmann::json(metadata).dump();
  std::int64_t offset = 0;
  for (const auto& [name, view] : order) {
    const std::int64_t size = packed_size(*view);
    if (size > std::numeric_limits<std::int64_t>::max() - offset) {
      fail(file, "cannot write: the tensors have more than 2^63 bytes");
    }
    if (text.size() > 1) text += ',';
    const std::span shape(view->shape.data(), static_cast<std::size_t>(view->rank));
    text += json_text(name) + ":{\"dtype\":" + json_text(safetensors_dtype_name(view->dtype)) +
            ",\"shape\":" + nlohmann::json(std::vector(shape.begin(), shape.end())).dump() +
            ",\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + size) +
            "]}";
    offset += size;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    fail(file, "cannot write: the header would have " + std::to_string(text.size()) +
                   " bytes; readers accept at most " + std::to_string(kMaxSafetensorsHeader));
  }
  return text;
}

}  // namespace

struct SafetensorsFile::AlignedCopies {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<std::byte[]>> of;
};

SafetensorsFile::SafetensorsFile(MappedFile file, SafetensorsHeader header)
    : file_(std::move(file)),
      header_(std::move(header)),
      copies_(std::make_shared<AlignedCopies>()) {}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  MappedFile file = MappedFile::open(path);
  SafetensorsHeader header = parse_safetensors(file.name(), file.bytes());
  return {std::move(file), std::move(header)};
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto& all = header_.entries;
  const auto at = std::lower_bound(all.begin(), all.end(), name,
                                   [](const Entry& e, const std::string& n) { return e.name < n; });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

TensorView SafetensorsFile::tensor(const std::string& name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) fail_absent(name);
  const auto dtype = find_safetensors_dtype(entry->dtype)->dtype;
  if (!dtype) {
    fail(file_.name(), "tensor " + in_quotes(name) + " is " + entry->dtype +
                           "; must be F32, F16, BF16, F8_E4M3, F8_E5M2 or I8");
  }
  if (entry->shape.size() > kMaxRank) {
    fail(file_.name(), "tensor " + in_quotes(name) + " has shape " + shape_text(entry->shape) +
                           "; must have at most " + std::to_string(kMaxRank) + " dimensions");
  }
  const std::lock_guard lock(copies_->mutex);
  if (const auto copy = copies_->of.find(name); copy != copies_->of.end()) {
    return row_major_view(copy->second.get(), *dtype, entry->shape);
  }
  std::unique_ptr<std::byte[]> fresh;
  const std::byte* data = aligned_bytes({entry->data, entry->size}, *dtype, fresh);
  if (fresh) copies_->of.emplace(name, std::move(fresh));
  return row_major_view(data, *dtype, entry->shape);
}

void SafetensorsFile::fail_absent(const std::string& name) const {
  const auto& all = header_.entries;
  std::string reason = "has no tensor " + in_quotes(name) + "; ";
  if (all.empty()) fail(file_.name(), reason + "it has none at all");
  reason += "it has ";
  const std::size_t listed = std::min(all.size(), kMaxNamesListed);
  for (std::size_t i = 0; i < listed; ++i) reason += (i == 0 ? "" : ", ") + in_quotes(all[i].name);
  if (listed < all.size()) reason += " and " + std::to_string(all.size() - listed) + " more";
  fail(file_.name(), reason);
}

void SafetensorsWriter::add(const std::string& name, const TensorView& view) {
  const std::string what = "SafetensorsWriter::add: tensor " + in_quotes(name);
  if (!is_utf8(name)) refuse(what + " has a name that is not UTF-8");
  if (name == kMetadataKey) refuse(what + " has a name that the format reserves");
  check_writable(what, view);
  if (!tensors_.emplace(name, view).second) refuse(what + " was added before; names are unique");
}

void SafetensorsWriter::set_metadata(std::map<std::string, std::string> metadata) {
  for (const auto& [key, value] : metadata) {
    if (!is_utf8(key) || !is_utf8(value)) {
      refuse("SafetensorsWriter::set_metadata: entry " + in_quotes(key) + " is not UTF-8");
    }
  }
  metadata_ = std::move(metadata);
}

void SafetensorsWriter::write(const std::filesystem::path& path) const {
  const auto order = placed(tensors_);
  const std::string header = header_json(path.string(), order, metadata_);
  AtomicFile file(path);
  const auto length = static_cast<std::uint64_t>(header.size());
  static_assert(sizeof(length) == kPrefix);
  file.write(&length, sizeof(length));
  file.write(header.data(), header.size());
  for (const auto& [name, view] : order) write_row_major(file, *view);
  file.commit();
}

}  // namespace octavo::io
