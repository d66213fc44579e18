#include "lib/compression/mask.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::compression {
namespace {

static_assert(std::endian::native == std::endian::little, "messages are little-endian and are written by memcpy");

constexpr int64_t kBlock = 65536;

int64_t MaskBlocks(int64_t elements) { return (elements + kBlock - 1) / kBlock; }
int64_t OffsetFormBytes(int64_t elements, int64_t kept) { return 4 * MaskBlocks(elements) + 2 * kept; }
int64_t BitmapBytes(int64_t elements) { return (elements + 7) / 8; }

absl::Status CheckCounts(std::span<const uint32_t> counts, int64_t elements, int64_t kept) {
  int64_t total = 0;
  for (size_t block = 0; block < counts.size(); ++block) {
    const int64_t capacity = std::min(kBlock, elements - static_cast<int64_t>(block) * kBlock);
    if (counts[block] > capacity) {
      return absl::InvalidArgumentError(absl::StrCat("mask block ", block, " claims ", counts[block], " of ", capacity, " elements"));
    }
    total += counts[block];
  }
  if (total != kept) return absl::InvalidArgumentError(absl::StrCat("mask blocks hold ", total, " indices, the header says ", kept));
  return absl::OkStatus();
}

// Offsets of one block: strictly increasing and below capacity (the last is the greatest).
absl::Status CheckOffsets(std::span<const uint16_t> offsets, size_t block, int64_t capacity) {
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] <= offsets[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat("mask block ", block, ": offset ", offsets[i], " follows ", offsets[i - 1]));
    }
  }
  if (!offsets.empty() && offsets.back() >= capacity) {
    return absl::InvalidArgumentError(absl::StrCat("mask block ", block, ": offset ", offsets.back(), " of ", capacity, " elements"));
  }
  return absl::OkStatus();
}

}  // namespace

bool Mask::UsesBitmap(int64_t elements, int64_t kept) { return BitmapBytes(elements) < OffsetFormBytes(elements, kept); }

int64_t Mask::SerializedBytes(int64_t elements, int64_t kept) { return std::min(BitmapBytes(elements), OffsetFormBytes(elements, kept)); }

Mask Mask::FromIndices(int64_t elements, std::span<const uint32_t> indices) {
  Mask mask;
  mask.elements_ = elements;
  mask.kept_ = static_cast<int64_t>(indices.size());
  if (UsesBitmap(elements, mask.kept_)) {
    mask.bitmap_.resize((elements + 63) / 64);
    for (uint32_t index : indices) mask.bitmap_[index / 64] |= uint64_t{1} << (index % 64);
    return mask;
  }
  mask.block_counts_.resize(MaskBlocks(elements));
  mask.offsets_.resize(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) mask.offsets_[i] = static_cast<uint16_t>(indices[i] % kBlock);
  auto begin = indices.begin();
  for (size_t block = 0; block < mask.block_counts_.size(); ++block) {
    const auto end = std::lower_bound(begin, indices.end(), (block + 1) * kBlock);
    mask.block_counts_[block] = static_cast<uint32_t>(end - begin);
    begin = end;
  }
  return mask;
}

absl::StatusOr<Mask> Mask::Parse(int64_t elements, int64_t kept, std::span<const std::byte> bytes) {
  if (static_cast<int64_t>(bytes.size()) != SerializedBytes(elements, kept)) {
    return absl::InvalidArgumentError(
        absl::StrCat("mask of ", bytes.size(), " bytes; ", kept, " of ", elements, " elements take ", SerializedBytes(elements, kept)));
  }
  Mask mask;
  mask.elements_ = elements;
  mask.kept_ = kept;
  if (UsesBitmap(elements, kept)) {
    mask.bitmap_.resize((elements + 63) / 64);
    std::memcpy(mask.bitmap_.data(), bytes.data(), bytes.size());
    int64_t total = 0;
    for (uint64_t word : mask.bitmap_) total += std::popcount(word);
    if (total != kept) return absl::InvalidArgumentError(absl::StrCat("mask bitmap has ", total, " bits set, the header says ", kept));
    if (elements % 64 != 0 && (mask.bitmap_.back() >> (elements % 64)) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("mask bitmap has bits set beyond its ", elements, " elements"));
    }
    return mask;
  }
  mask.block_counts_.resize(MaskBlocks(elements));
  if (!bytes.empty()) std::memcpy(mask.block_counts_.data(), bytes.data(), 4 * mask.block_counts_.size());
  FUSIONLLM_RETURN_IF_ERROR(CheckCounts(mask.block_counts_, elements, kept));
  mask.offsets_.resize(kept);
  if (kept > 0) std::memcpy(mask.offsets_.data(), bytes.data() + 4 * mask.block_counts_.size(), 2 * kept);
  std::span<const uint16_t> rest = mask.offsets_;
  for (size_t block = 0; block < mask.block_counts_.size(); ++block) {
    const int64_t capacity = std::min(kBlock, elements - static_cast<int64_t>(block) * kBlock);
    FUSIONLLM_RETURN_IF_ERROR(CheckOffsets(rest.first(mask.block_counts_[block]), block, capacity));
    rest = rest.subspan(mask.block_counts_[block]);
  }
  return mask;
}

void Mask::Serialize(std::byte* out) const {
  if (!bitmap_.empty()) {
    std::memcpy(out, bitmap_.data(), BitmapBytes(elements_));
    return;
  }
  if (block_counts_.empty()) return;
  std::memcpy(out, block_counts_.data(), 4 * block_counts_.size());
  if (!offsets_.empty()) std::memcpy(out + 4 * block_counts_.size(), offsets_.data(), 2 * offsets_.size());
}

size_t Mask::MemoryBytes() const { return sizeof(*this) + block_counts_.capacity() * 4 + offsets_.capacity() * 2 + bitmap_.capacity() * 8; }

template <typename Visit>
void Mask::ForEach(Visit visit) const {
  size_t ordinal = 0;
  if (!bitmap_.empty()) {
    for (size_t word = 0; word < bitmap_.size(); ++word) {
      for (uint64_t bits = bitmap_[word]; bits != 0; bits &= bits - 1) {
        visit(static_cast<uint32_t>(64 * word + std::countr_zero(bits)), ordinal++);
      }
    }
    return;
  }
  for (size_t block = 0; block < block_counts_.size(); ++block) {
    const auto base = static_cast<uint32_t>(block * kBlock);
    for (const size_t end = ordinal + block_counts_[block]; ordinal < end; ++ordinal) visit(base + offsets_[ordinal], ordinal);
  }
}

std::vector<uint32_t> Mask::Indices() const {
  std::vector<uint32_t> indices(kept_);
  ForEach([&](uint32_t index, size_t ordinal) { indices[ordinal] = index; });
  return indices;
}

void Mask::Gather(std::span<const float> dense, std::span<float> kept) const {
  ForEach([&](uint32_t index, size_t ordinal) { kept[ordinal] = dense[index]; });
}

void Mask::Scatter(std::span<const float> kept, std::span<float> dense) const {
  std::fill(dense.begin(), dense.end(), 0.0f);
  ForEach([&](uint32_t index, size_t ordinal) { dense[index] = kept[ordinal]; });
}

}  // namespace fusionllm::compression
