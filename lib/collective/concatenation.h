// Many tensors as if they lay one after the other, without a copy of them all; and how such a row is cut into chunks. Internal to
// lib/collective.
//
// Places are bytes from the beginning of the row. Tensors are borrowed. Where their memory is a device's, bytes go through a scratch of as
// many as are added at once. Not thread-safe; copies block as the memory's do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/memory.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::collective {

class Concatenation {
 public:
  explicit Concatenation(tensor::Memory& memory) : memory_(memory) {}

  // A tensor, or of one that is cut into `shares` equal runs the share `share`. Only what was appended mutable may be written.
  void Append(const tensor::TensorView& tensor, int share = 0, int shares = 1);
  void Append(const tensor::ConstTensorView& tensor, int share = 0, int shares = 1);

  size_t bytes() const { return bytes_; }
  // The last place at or before `place` where no element is split.
  size_t ElementAt(size_t place) const;

  // Preconditions: inside the row. Errors: the memory's.
  absl::Status Read(size_t begin, std::span<std::byte> to) const;
  absl::Status Write(size_t begin, std::span<const std::byte> from) const;
  // sums[i] = sums[i] + what is here, element by element; f32 or bf16, which is rounded. Precondition: no element is split.
  absl::Status AddTo(size_t begin, std::span<std::byte> sums);

 private:
  struct Segment {
    tensor::DType dtype;
    size_t begin;  // in the row
    size_t bytes;
    const std::byte* from;
    std::byte* to;  // null: read only
  };
  void Append(tensor::DType dtype, const std::byte* from, std::byte* to, size_t bytes);
  // Calls visit(segment, offset in it, offset from `begin`, bytes) for each piece of a segment in the stretch, until one answers an error.
  template <typename Visit>
  absl::Status ForEach(size_t begin, size_t bytes, const Visit& visit) const;

  tensor::Memory& memory_;
  std::vector<Segment> segments_;  // none is empty
  size_t bytes_ = 0;
  std::vector<std::byte> scratch_;
};

// A row cut into `runs` runs of equal length, and each run into as many chunks as the others, of nearly `chunk_bytes` at most; at
// elements. Equal rows are cut alike, wherever they are. Chunks are counted through all runs.
class ChunkLayout {
 public:
  // Precondition: no run splits an element.
  ChunkLayout(const Concatenation& row, int runs, size_t chunk_bytes);
  bool has_runs() const { return runs_ > 1; }
  int chunks() const { return chunks_; }  // of a run, one at least
  struct Piece {
    size_t begin, bytes;
  };
  Piece piece(int chunk) const;
  int run(int chunk) const { return chunk / chunks_; }
  size_t BeginOf(int run) const { return Boundary(static_cast<size_t>(run) * static_cast<size_t>(chunks_)); }

 private:
  size_t Boundary(size_t chunk) const;
  const Concatenation& row_;
  int runs_, chunks_;
};

}  // namespace fusionllm::collective
