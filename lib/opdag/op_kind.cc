#include "lib/opdag/op_kind.h"

#include "absl/container/flat_hash_map.h"

namespace fusionllm::opdag {

absl::string_view Name(OpKind kind) {
  switch (kind) {
    case OpKind::kNone:
      return "";
    case OpKind::kPlaceholder:
      return "placeholder";
    case OpKind::kConstant:
      return "constant";
    case OpKind::kEmbedding:
      return "embedding";
    case OpKind::kEmbeddingGrad:
      return "embedding_grad";
    case OpKind::kLayerNorm:
      return "layer_norm";
    case OpKind::kLayerNormGrad:
      return "layer_norm_grad";
    case OpKind::kBatchNorm:
      return "batch_norm";
    case OpKind::kBatchNormGrad:
      return "batch_norm_grad";
    case OpKind::kSoftmax:
      return "softmax";
    case OpKind::kSoftmaxGrad:
      return "softmax_grad";
    case OpKind::kLogSoftmax:
      return "log_softmax";
    case OpKind::kLogSoftmaxGrad:
      return "log_softmax_grad";
    case OpKind::kLinear:
      return "linear";
    case OpKind::kLinearGradInput:
      return "linear_grad_input";
    case OpKind::kLinearGradWeight:
      return "linear_grad_weight";
    case OpKind::kMatmul:
      return "matmul";
    case OpKind::kAttention:
      return "attention";
    case OpKind::kAttentionGrad:
      return "attention_grad";
    case OpKind::kGelu:
      return "gelu";
    case OpKind::kGeluGrad:
      return "gelu_grad";
    case OpKind::kRelu:
      return "relu";
    case OpKind::kReluGrad:
      return "relu_grad";
    case OpKind::kTanh:
      return "tanh";
    case OpKind::kTanhGrad:
      return "tanh_grad";
    case OpKind::kSigmoid:
      return "sigmoid";
    case OpKind::kSigmoidGrad:
      return "sigmoid_grad";
    case OpKind::kExp:
      return "exp";
    case OpKind::kLog:
      return "log";
    case OpKind::kSqrt:
      return "sqrt";
    case OpKind::kNeg:
      return "neg";
    case OpKind::kSquare:
      return "square";
    case OpKind::kScale:
      return "scale";
    case OpKind::kAdd:
      return "add";
    case OpKind::kSub:
      return "sub";
    case OpKind::kMul:
      return "mul";
    case OpKind::kDiv:
      return "div";
    case OpKind::kReshape:
      return "reshape";
    case OpKind::kFlatten:
      return "flatten";
    case OpKind::kTranspose:
      return "transpose";
    case OpKind::kConcat:
      return "concat";
    case OpKind::kSplit:
      return "split";
    case OpKind::kSlice:
      return "slice";
    case OpKind::kPadSlice:
      return "pad_slice";
    case OpKind::kReduce:
      return "reduce";
    case OpKind::kReduceMaxGrad:
      return "reduce_max_grad";
    case OpKind::kBroadcastTo:
      return "broadcast_to";
    case OpKind::kSumTo:
      return "sum_to";
    case OpKind::kDropout:
      return "dropout";
    case OpKind::kDropoutGrad:
      return "dropout_grad";
    case OpKind::kCrossEntropy:
      return "cross_entropy";
    case OpKind::kCrossEntropyGrad:
      return "cross_entropy_grad";
    case OpKind::kMse:
      return "mse";
    case OpKind::kMseGrad:
      return "mse_grad";
    case OpKind::kConv2d:
      return "conv2d";
    case OpKind::kConv2dGradInput:
      return "conv2d_grad_input";
    case OpKind::kConv2dGradWeight:
      return "conv2d_grad_weight";
    case OpKind::kMaxPool2d:
      return "max_pool2d";
    case OpKind::kMaxPool2dGrad:
      return "max_pool2d_grad";
    case OpKind::kAvgPool2d:
      return "avg_pool2d";
    case OpKind::kAvgPool2dGrad:
      return "avg_pool2d_grad";
    case OpKind::kGlobalAvgPool:
      return "global_avg_pool";
    case OpKind::kGlobalAvgPoolGrad:
      return "global_avg_pool_grad";
  }
  return "";
}

OpKind OpKindOf(absl::string_view name) {
  static const auto* const kinds = [] {
    auto* all = new absl::flat_hash_map<absl::string_view, OpKind>();
    for (int i = 1; i < kOpKindCount; ++i) all->emplace(Name(static_cast<OpKind>(i)), static_cast<OpKind>(i));
    return all;
  }();
  const auto found = kinds->find(name);
  return found == kinds->end() ? OpKind::kNone : found->second;
}

}  // namespace fusionllm::opdag
