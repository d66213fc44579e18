// The types of ops. What each of them is stands in op_schema.h.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace fusionllm::opdag {

enum class OpKind : uint8_t {
  kNone,  // of no op
  kPlaceholder,
  kConstant,
  kEmbedding,
  kEmbeddingGrad,
  kLayerNorm,
  kLayerNormGrad,
  kBatchNorm,
  kBatchNormGrad,
  kSoftmax,
  kSoftmaxGrad,
  kLogSoftmax,
  kLogSoftmaxGrad,
  kLinear,
  kLinearGradInput,
  kLinearGradWeight,
  kMatmul,
  kAttention,
  kAttentionGrad,
  kGelu,
  kGeluGrad,
  kRelu,
  kReluGrad,
  kTanh,
  kTanhGrad,
  kSigmoid,
  kSigmoidGrad,
  kExp,
  kLog,
  kSqrt,
  kNeg,
  kSquare,
  kScale,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kReshape,
  kFlatten,
  kTranspose,
  kConcat,
  kSplit,
  kSlice,
  kPadSlice,
  kReduce,
  kReduceMaxGrad,
  kBroadcastTo,
  kSumTo,
  kDropout,
  kDropoutGrad,
  kCrossEntropy,
  kCrossEntropyGrad,
  kMse,
  kMseGrad,
  kConv2d,
  kConv2dGradInput,
  kConv2dGradWeight,
  kMaxPool2d,
  kMaxPool2dGrad,
  kAvgPool2d,
  kAvgPool2dGrad,
  kGlobalAvgPool,
  kGlobalAvgPoolGrad,
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::kGlobalAvgPoolGrad) + 1;

// As in the text form of graphs: "layer_norm_grad"; empty for kNone.
absl::string_view Name(OpKind kind);
// kNone: no op type has this name.
OpKind OpKindOf(absl::string_view name);

}  // namespace fusionllm::opdag
