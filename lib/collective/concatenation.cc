#include "lib/collective/concatenation.h"

#include <algorithm>
#include <cstring>

#include "lib/base/status_macros.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::collective {
namespace {

// Elements are read as bytes: in a chunk with tensors of both types they need not be aligned.
template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <typename T>
void Store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

void AddF32(std::byte* __restrict sums, const std::byte* __restrict terms, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Store(sums + i * sizeof(float), Load<float>(sums + i * sizeof(float)) + Load<float>(terms + i * sizeof(float)));
  }
}

void AddBf16(std::byte* __restrict sums, const std::byte* __restrict terms, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto sum = Load<uint16_t>(sums + i * sizeof(uint16_t)), term = Load<uint16_t>(terms + i * sizeof(uint16_t));
    Store(sums + i * sizeof(uint16_t), tensor::RoundToBf16(tensor::UpcastBf16(sum) + tensor::UpcastBf16(term)));
  }
}

void Add(tensor::DType dtype, std::byte* sums, const std::byte* terms, size_t bytes) {
  if (dtype == tensor::DType::kF32) return AddF32(sums, terms, bytes / sizeof(float));
  AddBf16(sums, terms, bytes / sizeof(uint16_t));
}

}  // namespace

void Concatenation::Append(tensor::DType dtype, const std::byte* from, std::byte* to, size_t bytes) {
  if (bytes == 0) return;
  segments_.push_back({.dtype = dtype, .begin = bytes_, .bytes = bytes, .from = from, .to = to});
  bytes_ += bytes;
}

void Concatenation::Append(const tensor::TensorView& tensor, int share, int shares) {
  const size_t bytes = tensor.type.bytes() / static_cast<size_t>(shares);
  if (bytes == 0) return;  // its address may be null
  std::byte* const begin = tensor.as<std::byte>() + static_cast<size_t>(share) * bytes;
  Append(tensor.type.dtype, begin, begin, bytes);
}

void Concatenation::Append(const tensor::ConstTensorView& tensor, int share, int shares) {
  const size_t bytes = tensor.type.bytes() / static_cast<size_t>(shares);
  if (bytes == 0) return;
  Append(tensor.type.dtype, tensor.as<std::byte>() + static_cast<size_t>(share) * bytes, nullptr, bytes);
}

size_t Concatenation::ElementAt(size_t place) const {
  if (place >= bytes_) return bytes_;
  const auto after = std::upper_bound(segments_.begin(), segments_.end(), place, [](size_t at, const Segment& s) { return at < s.begin; });
  const Segment& segment = *std::prev(after);
  return place - (place - segment.begin) % tensor::SizeOf(segment.dtype);
}

template <typename Visit>
absl::Status Concatenation::ForEach(size_t begin, size_t bytes, const Visit& visit) const {
  if (bytes == 0) return absl::OkStatus();
  auto segment =
      std::prev(std::upper_bound(segments_.begin(), segments_.end(), begin, [](size_t at, const Segment& s) { return at < s.begin; }));
  for (size_t done = 0; done < bytes; ++segment) {
    const size_t inside = begin + done - segment->begin;
    const size_t now = std::min(segment->bytes - inside, bytes - done);
    FUSIONLLM_RETURN_IF_ERROR(visit(*segment, inside, done, now));
    done += now;
  }
  return absl::OkStatus();
}

absl::Status Concatenation::Read(size_t begin, std::span<std::byte> to) const {
  return ForEach(begin, to.size(), [&](const Segment& segment, size_t inside, size_t done, size_t bytes) {
    return memory_.CopyOut(to.data() + done, segment.from + inside, bytes);
  });
}

absl::Status Concatenation::Write(size_t begin, std::span<const std::byte> from) const {
  return ForEach(begin, from.size(), [&](const Segment& segment, size_t inside, size_t done, size_t bytes) {
    return memory_.CopyIn(segment.to + inside, from.data() + done, bytes);
  });
}

absl::Status Concatenation::AddTo(size_t begin, std::span<std::byte> sums) {
  return ForEach(begin, sums.size(), [&](const Segment& segment, size_t inside, size_t done, size_t bytes) {
    const std::byte* terms = segment.from + inside;
    if (!memory_.on_host()) {
      if (scratch_.size() < bytes) scratch_.resize(bytes);
      FUSIONLLM_RETURN_IF_ERROR(memory_.CopyOut(scratch_.data(), terms, bytes));
      terms = scratch_.data();
    }
    Add(segment.dtype, sums.data() + done, terms, bytes);
    return absl::OkStatus();
  });
}

ChunkLayout::ChunkLayout(const Concatenation& row, int runs, size_t chunk_bytes) : row_(row), runs_(runs) {
  const size_t run = row.bytes() / static_cast<size_t>(runs);
  chunks_ = static_cast<int>(std::max<size_t>(1, run / chunk_bytes + (run % chunk_bytes == 0 ? 0 : 1)));
}

size_t ChunkLayout::Boundary(size_t chunk) const {
  // row_.bytes() * chunk / all, which could overflow.
  const size_t all = static_cast<size_t>(runs_) * static_cast<size_t>(chunks_);
  const size_t whole = row_.bytes() / all, rest = row_.bytes() % all;
  return row_.ElementAt(whole * chunk + rest * chunk / all);
}

ChunkLayout::Piece ChunkLayout::piece(int chunk) const {
  const size_t begin = Boundary(static_cast<size_t>(chunk));
  return {.begin = begin, .bytes = Boundary(static_cast<size_t>(chunk) + 1) - begin};
}

}  // namespace fusionllm::collective
