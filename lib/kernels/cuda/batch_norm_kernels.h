// Kernels of batch norm, for channels that are whole quads (channels.h): statistics and sums of gradients by stretches of rows, whose
// results are put together in their order, and what is done to each element. What stands beside a batch norm in a residual network is done
// on the way. For batch_norm.cu.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "lib/kernels/cuda/channels.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/strips.h"

namespace fusionllm::kernels::cuda {

// Rows that a thread asks for before it uses the first: enough bytes under way for the memory to be kept busy.
inline constexpr int kRowsMeasured = 8;
inline constexpr int kRowsMapped = 4;

// A stretch has a whole tile of a block at least, and there are blocks enough for the greatest cards.
inline int64_t QuadStretches(int64_t rows, int64_t channels, int64_t rows_each) {
  return std::clamp<int64_t>(rows / RowsOfBlock(channels, rows_each), 1, std::max<int64_t>(1, 132 * 4 / QuadStrips(channels)));
}

// ---- Statistics -------------------------------------------------------------------------------------------------------------------------

// Of some numbers of each of four channels.
struct Moments {
  float count;
  float4 mean, squares;  // squares: their sum around the mean
};

// Chan, Golub and LeVeque's rule (1979, equation 2.1).
__device__ inline void Merge(const Moments& more, Moments& own) {
  const float total = own.count + more.count;
  if (total == 0) return;
  const float share = __fdividef(more.count, total), weight = own.count * share;
  const float4 delta = OfEach([](float a, float b) { return a - b; }, more.mean, own.mean);
  own.mean = OfEach([&](float mean, float d) { return mean + d * share; }, own.mean, delta);
  own.squares = OfEach([&](float a, float b, float d) { return a + b + d * d * weight; }, own.squares, more.squares, delta);
  own.count = total;
}

// Of each stretch: the mean and the sum of squares around it, so that no large sums are subtracted. A thread measures as many rows as it
// holds in registers, in two passes over them, and merges what it finds. Means are those of what is left of x when its first row is taken
// from it: where the mean is large beside the deviation, so would be the rounding of all those that are merged.
template <typename T>
__global__ void __launch_bounds__(kQuadThreads)
    MeasureQuads(const T* x, int64_t rows, int64_t columns, int64_t stretches, float* partials) {
  __shared__ Moments of_thread[kQuadThreads];
  const int64_t quads = columns / 4, quad = OwnQuad();
  const Stretch stretch = StretchOf(blockIdx.y, stretches, rows);
  Moments own{0, make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
  const float4 origin = quad < quads ? LoadQuad(x, quad) : own.mean;
  for (int64_t row = stretch.first + threadIdx.y; row < stretch.last && quad < quads; row += kRowsMeasured * blockDim.y) {
    const OwnRows own_rows(row, stretch.last, quad, quads);
    float4 held[kRowsMeasured];
    Moments found{0, make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
#pragma unroll
    for (int k = 0; k < kRowsMeasured; ++k) held[k] = LoadQuad(x, own_rows[k]);
#pragma unroll
    for (int k = 0; k < kRowsMeasured; ++k) {
      const bool there = own_rows.Has(k);
      found.count += there ? 1.0f : 0.0f;
      held[k] = OfEach([&](float v, float o) { return there ? v - o : 0.0f; }, held[k], origin);
      found.mean = OfEach([](float a, float b) { return a + b; }, found.mean, held[k]);
    }
    const float share = __fdividef(1.0f, found.count);
    found.mean = OfEach([&](float sum) { return sum * share; }, found.mean);
#pragma unroll
    for (int k = 0; k < kRowsMeasured; ++k) {
      const bool there = own_rows.Has(k);
      const float4 apart = OfEach([&](float v, float mean) { return there ? v - mean : 0.0f; }, held[k], found.mean);
      found.squares = OfEach([](float s, float d) { return s + d * d; }, found.squares, apart);
    }
    Merge(found, own);
  }
  // Threads that hold the same channels, by halves.
  const unsigned place = threadIdx.y * blockDim.x + threadIdx.x;
  of_thread[place] = own;
  for (unsigned left = blockDim.y / 2; left > 0; left /= 2) {
    __syncthreads();
    if (threadIdx.y >= left) continue;
    Merge(of_thread[place + left * blockDim.x], own);
    of_thread[place] = own;
  }
  if (threadIdx.y != 0 || quad >= quads) return;
  StoreQuad(partials + 2 * static_cast<int64_t>(blockIdx.y) * columns, quad, own.mean);
  StoreQuad(partials + (2 * static_cast<int64_t>(blockIdx.y) + 1) * columns, quad, own.squares);
}

// ---- Normalization ----------------------------------------------------------------------------------------------------------------------

enum class Next { kNothing, kRelu, kAdd, kAddRelu };

template <typename T>
struct Normalization {
  const T* x;
  const float *center, *factor, *bias;
  T* y;            // null: goes on to the next op alone
  const T* added;  // what the next op adds, or null
  T* sum;          // what it makes of y where a relu follows; null: goes on to that alone
  T* last;         // what the last of the next ops makes, or null
  int64_t rows, columns;
};

template <Next kNext, typename T>
__global__ void __launch_bounds__(kQuadThreads) NormalizeQuads(Normalization<T> n) {
  constexpr bool kAdds = kNext == Next::kAdd || kNext == Next::kAddRelu;
  const auto relu = [](float v) { return Relu(v); };
  const int64_t quads = n.columns / 4, quad = OwnQuad();
  if (quad >= quads) return;
  const float4 center = LoadQuad(n.center, quad), factor = LoadQuad(n.factor, quad), bias = LoadQuad(n.bias, quad);
  const int64_t tile = static_cast<int64_t>(kRowsMapped) * blockDim.y;
  for (int64_t row = blockIdx.y * tile + threadIdx.y; row < n.rows; row += gridDim.y * tile) {
    const OwnRows own_rows(row, n.rows, quad, quads);
    float4 x[kRowsMapped], added[kRowsMapped];
#pragma unroll
    for (int k = 0; k < kRowsMapped; ++k) {
      x[k] = LoadQuad(n.x, own_rows[k]);
      if (kAdds) added[k] = LoadQuad(n.added, own_rows[k]);
    }
#pragma unroll
    for (int k = 0; k < kRowsMapped; ++k) {
      if (!own_rows.Has(k)) continue;
      const float4 y = AsStored<T>(OfEach([](float v, float c, float f, float b) { return (v - c) * f + b; }, x[k], center, factor, bias));
      if (kNext == Next::kNothing || n.y != nullptr) StoreQuad(n.y, own_rows[k], y);
      if (kNext == Next::kRelu) StoreQuad(n.last, own_rows[k], OfEach(relu, y));
      if (!kAdds) continue;
      const float4 sum = AddStored<T>(y, added[k]);
      if (kNext == Next::kAdd) StoreQuad(n.last, own_rows[k], sum);
      if (kNext == Next::kAddRelu && n.sum != nullptr) StoreQuad(n.sum, own_rows[k], sum);
      if (kNext == Next::kAddRelu) StoreQuad(n.last, own_rows[k], OfEach(relu, sum));
    }
  }
}

// ---- Gradients --------------------------------------------------------------------------------------------------------------------------

// How a gradient comes to a norm: as it is, or through the relu that followed the norm, or as a sum of two through that.
enum class Coming { kAsItIs, kThroughRelu, kAddedThroughRelu };

template <typename T>
struct Gradient {
  const T* x;
  const T* dy;
  const T* added;  // what is added to dy, or null
  const T* relu;   // what the relu gave, or null
  T* sum;          // dy + added, or null where no other kernel wants it
  T* through;      // what the relu lets through of it; null as `sum`, or where there is no relu
  const float *means, *rstds, *weight;
  float* partials;  // of each stretch: the sums of dy * (x - mean) * rstd and of dy
  float* sums;      // of all: the same
  T* dx;            // or null
  int64_t rows, columns;
};

// The rows that a thread holds, as they lie in memory: all are asked for before the first is made floats of.
template <Coming kComing, typename T>
struct HeldRows {
  static constexpr bool kAdds = kComing == Coming::kAddedThroughRelu, kThroughRelu = kComing != Coming::kAsItIs;
  Quad<T> x[kRowsMapped], dy[kRowsMapped], added[kAdds ? kRowsMapped : 1], relu[kThroughRelu ? kRowsMapped : 1];
  __device__ HeldRows(const Gradient<T>& g, const OwnRows& rows) {
#pragma unroll
    for (int k = 0; k < kRowsMapped; ++k) {
      x[k] = reinterpret_cast<const Quad<T>*>(g.x)[rows[k]];
      dy[k] = reinterpret_cast<const Quad<T>*>(g.dy)[rows[k]];
      if (kAdds) added[k] = reinterpret_cast<const Quad<T>*>(g.added)[rows[k]];
      if (kThroughRelu) relu[k] = reinterpret_cast<const Quad<T>*>(g.relu)[rows[k]];
    }
  }
  __device__ float4 SumAt(int k) const { return kAdds ? AddStored<T>(Floats(dy[k]), Floats(added[kAdds ? k : 0])) : Floats(dy[k]); }
  // Of a sum, what the relu lets through.
  __device__ float4 Through(int k, float4 sum) const {
    if (!kThroughRelu) return sum;
    return OfEach([](float y, float d) { return ReluGradient(y, d); }, Floats(relu[kThroughRelu ? k : 0]), sum);
  }
};

// Leaves what comes to the norm in `sum` and `through`, for what wants it and for GradientOfQuads: so nothing is added or masked twice,
// and what it is made of is read once. An element is read by the thread that writes it.
template <Coming kComing, typename T>
__global__ void __launch_bounds__(kQuadThreads, 2) SumGradientsOfQuads(Gradient<T> g, int64_t stretches) {
  __shared__ float4 products_of[kQuadThreads], sum_of[kQuadThreads];
  const int64_t quads = g.columns / 4, quad = OwnQuad();
  const Stretch stretch = StretchOf(blockIdx.y, stretches, g.rows);
  const auto add = [](float a, float b) { return a + b; };
  float4 products = make_float4(0, 0, 0, 0), sum = products, mean = products;
  if (quad < quads) mean = LoadQuad(g.means, quad);
  for (int64_t row = stretch.first + threadIdx.y; row < stretch.last && quad < quads; row += kRowsMapped * blockDim.y) {
    const OwnRows own_rows(row, stretch.last, quad, quads);
    const HeldRows<kComing, T> held(g, own_rows);
#pragma unroll
    for (int k = 0; k < kRowsMapped; ++k) {
      const bool there = own_rows.Has(k);
      const float4 added = held.SumAt(k), through = held.Through(k, added);
      if (kComing == Coming::kAddedThroughRelu && there && g.sum != nullptr) StoreQuad(g.sum, own_rows[k], added);
      if (kComing != Coming::kAsItIs && there && g.through != nullptr) StoreQuad(g.through, own_rows[k], through);
      const float4 dy = OfEach([&](float d) { return there ? d : 0.0f; }, through);
      products = OfEach([](float s, float v, float m, float d) { return s + d * (v - m); }, products, Floats(held.x[k]), mean, dy);
      sum = OfEach(add, sum, dy);
    }
  }
  const unsigned place = threadIdx.y * blockDim.x + threadIdx.x;
  products_of[place] = products;
  sum_of[place] = sum;
  for (unsigned left = blockDim.y / 2; left > 0; left /= 2) {
    __syncthreads();
    if (threadIdx.y >= left) continue;
    products_of[place] = products = OfEach(add, products, products_of[place + left * blockDim.x]);
    sum_of[place] = sum = OfEach(add, sum, sum_of[place + left * blockDim.x]);
  }
  if (threadIdx.y != 0 || quad >= quads) return;
  const float4 rstd = LoadQuad(g.rstds, quad);
  StoreQuad(g.partials + 2 * static_cast<int64_t>(blockIdx.y) * g.columns, quad,
            OfEach([](float a, float b) { return a * b; }, products, rstd));
  StoreQuad(g.partials + (2 * static_cast<int64_t>(blockIdx.y) + 1) * g.columns, quad, sum);
}

// dx = w rstd (dy - dbias / n - (x - mean) rstd dweight / n). dx may lie where dy does.
template <typename T>
__global__ void __launch_bounds__(kQuadThreads) GradientOfQuads(Gradient<T> g) {
  const int64_t quads = g.columns / 4, quad = OwnQuad();
  if (quad >= quads) return;
  const float share = 1.0f / static_cast<float>(g.rows);
  const auto multiply = [](float a, float b) { return a * b; };
  const float4 mean = LoadQuad(g.means, quad), rstd = LoadQuad(g.rstds, quad);
  const float4 factor = OfEach(multiply, rstd, LoadQuad(g.weight, quad));
  const auto of_share = [&](float a) { return a * share; };
  const float4 slope = OfEach(multiply, rstd, OfEach(of_share, LoadQuad(g.sums, quad)));
  const float4 shift = OfEach(of_share, LoadQuad(g.sums + g.columns, quad));
  const int64_t tile = static_cast<int64_t>(kRowsMapped) * blockDim.y;
  for (int64_t row = blockIdx.y * tile + threadIdx.y; row < g.rows; row += gridDim.y * tile) {
    const OwnRows own_rows(row, g.rows, quad, quads);
    const HeldRows<Coming::kAsItIs, T> held(g, own_rows);
#pragma unroll
    for (int k = 0; k < kRowsMapped; ++k) {
      if (!own_rows.Has(k)) continue;
      const float4 centered = OfEach([](float v, float m) { return v - m; }, Floats(held.x[k]), mean);
      StoreQuad(g.dx, own_rows[k],
                OfEach([](float d, float s, float c, float b, float f) { return (d - s - c * b) * f; }, Floats(held.dy[k]), shift, centered,
                       slope, factor));
    }
  }
}

}  // namespace fusionllm::kernels::cuda
