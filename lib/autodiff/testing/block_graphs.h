// Networks of equal parts whose best division into blocks of recomputation can be found by hand (lib/autodiff/recompute_blocks.h). All take
// f32 "images" of kBlockWidth numbers a sample and compare what they make of them with such a target; untyped.
#pragma once

#include <cstdint>

#include "lib/opdag/graph.h"

namespace fusionllm::autodiff::testing {

constexpr int64_t kBlockWidth = 64;

enum class Weights : uint8_t { kOwn, kShared };

// linear.1, linear.2 .. linear.N. Shared: one weight for all of them.
opdag::Graph Chain(int linears, Weights weights = Weights::kOwn);
// x + down(gelu(up(x))), N times: up.1, gelu.1, down.1, sum.1, up.2 .. The inside is four times as wide.
opdag::Graph ResidualBlocks(int blocks);
// left(x) * right(x), N times: left.1, right.1, product.1, left.2 ..
opdag::Graph Diamonds(int diamonds);
// gelu(linear(x) + table), N times, with one table, which is made of the images first: table, linear.1, sum.1, gelu.1, linear.2 ..
opdag::Graph WithSharedTable(int blocks);

}  // namespace fusionllm::autodiff::testing
