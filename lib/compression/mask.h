// Which elements of a tensor a top-k selection kept. Sender and receiver each hold one from the forward message of a micro-batch until the
// backward message of that micro-batch, which therefore carries no indices.
//
// Owning, movable, copyable, immutable once built; const access is thread-safe. Two forms with one meaning, in memory as on the wire:
// 16-bit offsets inside blocks of 64 Ki elements with a count for each block, or a bitmap where that is smaller (kept / size above about
// 1/16). The form follows from (elements, kept) alone, so equal selections are equal objects and their size is known beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fusionllm::compression {

class Mask {
 public:
  // Nothing was selected: the edge is dense. Functions that take a mask treat this one as none.
  Mask() = default;

  // indices: strictly increasing, all below elements; the caller's duty (they come from our own selection).
  static Mask FromIndices(int64_t elements, std::span<const uint32_t> indices);
  // bytes come from a peer: wrong length, counts that do not add up to kept, offsets that do not increase or lie beyond the tensor and
  // padding bits that are set are InvalidArgument. elements and kept must have been checked: 0 <= kept <= elements <= kMaxElements.
  // Allocates no more than bytes.size() + 4 bytes for each 64 Ki elements, and only after the length is found right.
  static absl::StatusOr<Mask> Parse(int64_t elements, int64_t kept, std::span<const std::byte> bytes);

  static int64_t SerializedBytes(int64_t elements, int64_t kept);
  static bool UsesBitmap(int64_t elements, int64_t kept);
  // Writes SerializedBytes(elements(), kept()) bytes.
  void Serialize(std::byte* out) const;

  bool dense() const { return elements_ == 0; }
  int64_t elements() const { return elements_; }
  int64_t kept() const { return kept_; }
  size_t MemoryBytes() const;  // held by this object, for the runtime's memory account

  std::vector<uint32_t> Indices() const;
  // kept[i] = dense[index i]. Sizes: elements() and kept().
  void Gather(std::span<const float> dense, std::span<float> kept) const;
  // dense[index i] = kept[i], every other element 0.
  void Scatter(std::span<const float> kept, std::span<float> dense) const;

  bool operator==(const Mask&) const = default;

 private:
  template <typename Visit>  // Visit(uint32_t index, size_t ordinal), in increasing order
  void ForEach(Visit visit) const;

  int64_t elements_ = 0;
  int64_t kept_ = 0;
  std::vector<uint32_t> block_counts_;  // offset form
  std::vector<uint16_t> offsets_;       // offset form: kept_ of them
  std::vector<uint64_t> bitmap_;        // bitmap form: element i is bit i % 64 of word i / 64
};

}  // namespace fusionllm::compression
