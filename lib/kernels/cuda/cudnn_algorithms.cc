#include "lib/kernels/cuda/cudnn_algorithms.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::kernels::cuda {
namespace {

// What vector loads ask for; tensors have more.
constexpr int64_t kByteAlignment = 16;
static_assert(tensor::kAlignment % kByteAlignment == 0);

cudnnDataType_t TypeOf(const ConvolutionSpec& spec) {
  return spec.dtype() == tensor::DType::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

// The names of what the three passes have in common.
struct Operation {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, weight, y, convolution, alpha, beta;
  CudnnTensor number_of_x, number_of_weight, number_of_y;
};

Operation OperationOf(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              kFirstTensor,
              kSecondTensor,
              kResultTensor};
    case ConvolutionPass::kGradInput:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              kResultTensor,
              kSecondTensor,
              kFirstTensor};
    case ConvolutionPass::kGradWeight:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
          kFirstTensor,
          kResultTensor,
          kSecondTensor};
}

// The library names axes in the order [outer, channels, height, width], whatever lies next to what: here the channels do.
struct Axes {
  int64_t outer, channels, height, width;
  std::array<int64_t, 4> extents() const { return {outer, channels, height, width}; }
  std::array<int64_t, 4> strides() const { return {height * width * channels, 1, width * channels, channels}; }
};

}  // namespace

class CudnnGraph {
 public:
  CudnnGraph(const CudnnLibrary& library, const ConvolutionSpec& spec)
      : spec_(spec),
        operation_of_(OperationOf(spec.pass)),
        x_(library, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
        weight_(library, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
        y_(library, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
        convolution_(library, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR),
        operation_(library, operation_of_.type),
        graph_(library, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {}

  absl::Status Describe(const CudnnTarget& target) {
    const ConvolutionShape& s = spec_.shape;
    FUSIONLLM_RETURN_IF_ERROR(DescribeTensor(x_, operation_of_.number_of_x, {s.batch, s.in_channels, s.in_height, s.in_width}));
    // Groups follow from the channels of a group that it has.
    FUSIONLLM_RETURN_IF_ERROR(
        DescribeTensor(weight_, operation_of_.number_of_weight, {s.out_channels, s.in_channels / s.groups, s.kernel[0], s.kernel[1]}));
    FUSIONLLM_RETURN_IF_ERROR(DescribeTensor(y_, operation_of_.number_of_y, {s.batch, s.out_channels, s.out_height, s.out_width}));
    const auto both = [](const std::array<int64_t, 2>& axes) { return std::span<const int64_t>(axes); };
    FUSIONLLM_RETURN_IF_ERROR(convolution_.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
                                  .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
                                  .Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
                                  .Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, both(s.padding))
                                  .Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, both(s.padding))
                                  .Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, both(s.stride))
                                  .Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, both(s.dilation))
                                  .Finalize("describing a convolution"));
    FUSIONLLM_RETURN_IF_ERROR(operation_.Set(operation_of_.x, x_)
                                  .Set(operation_of_.weight, weight_)
                                  .Set(operation_of_.y, y_)
                                  .Set(operation_of_.convolution, convolution_)
                                  .Set(operation_of_.alpha, 1.0f)
                                  .Set(operation_of_.beta, 0.0f)
                                  .Finalize("describing the pass of a convolution"));
    if (target.handle != nullptr) graph_.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
    return graph_.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation_).Finalize("describing a graph");
  }
  const CudnnDescriptor& descriptor() const { return graph_; }

 private:
  absl::Status DescribeTensor(CudnnDescriptor& tensor, CudnnTensor number, const Axes& axes) const {
    return tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{number})
        .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, TypeOf(spec_))
        .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kByteAlignment)
        .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const int64_t>(axes.extents()))
        .Set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const int64_t>(axes.strides()))
        .Finalize("describing a tensor");
  }

  const ConvolutionSpec spec_;
  const Operation operation_of_;
  CudnnDescriptor x_, weight_, y_, convolution_, operation_, graph_;
};

namespace {

// Gradients of weights that are rounded to bf16 are asked for because of their units' speed.
bool OnTensorCoresAlone(const ConvolutionSpec& spec) {
  return spec.pass == ConvolutionPass::kGradWeight && spec.precision == ConvolutionPrecision::kBf16;
}

// Whether an engine with such notes may be used; `tensor_cores`: whether it multiplies on them. Those that do on f32 round factors to TF32,
// and say no more of it than that (cuDNN 9.28 has no DOWN_CONVERT_INPUTS for them).
absl::StatusOr<bool> Allowed(const CudnnDescriptor& engine, const ConvolutionSpec& spec, bool& tensor_cores) {
  FUSIONLLM_ASSIGN_OR_RETURN(const auto behavior, engine.Get<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE));
  if (std::find(behavior.begin(), behavior.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behavior.end()) return false;
  FUSIONLLM_ASSIGN_OR_RETURN(const auto notes, engine.Get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
  for (const cudnnBackendNumericalNote_t note : notes) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        tensor_cores = true;
        if (spec.precision == ConvolutionPrecision::kFloat) return false;
        break;
      case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
        break;
      default:  // what rounds, what is not the same each time, what computes with other numbers, and notes of a later version
        return false;
    }
  }
  return tensor_cores || !OnTensorCoresAlone(spec);
}

absl::StatusOr<CudnnAlgorithm> Plan(const CudnnLibrary& library, const CudnnTarget& target, std::shared_ptr<const CudnnGraph> graph,
                                    std::shared_ptr<const CudnnDescriptor> configuration) {
  auto plan = std::make_shared<CudnnDescriptor>(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan->Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *configuration);
  if (target.handle != nullptr) {
    plan->Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  } else {
    plan->Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.described);
  }
  FUSIONLLM_RETURN_IF_ERROR(plan->Finalize("planning a convolution"));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<int64_t> workspace, plan->Get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  return CudnnAlgorithm{
      .graph = std::move(graph), .configuration = std::move(configuration), .plan = std::move(plan), .workspace_bytes = workspace.at(0)};
}

// Those of one of the library's lists.
absl::StatusOr<std::vector<CudnnDescriptor>> Configurations(const CudnnLibrary& library, const CudnnTarget& target, const CudnnGraph& graph,
                                                            cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristic(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor()).Set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target.described != nullptr) heuristic.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.described);
  FUSIONLLM_RETURN_IF_ERROR(heuristic.Finalize("asking for algorithms"));
  return heuristic.GetDescriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}

// Whether an offer of the library's may be used, and works: what is on its lists need not, and planning is how to know.
absl::StatusOr<CudnnAlgorithm> AlgorithmOf(const CudnnLibrary& library, const CudnnTarget& target, const ConvolutionSpec& spec,
                                           std::shared_ptr<const CudnnGraph> graph, CudnnDescriptor offer) {
  auto configuration = std::make_shared<const CudnnDescriptor>(std::move(offer));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<CudnnDescriptor> engine,
                             configuration->GetDescriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<int64_t> number, engine.at(0).Get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  bool tensor_cores = false;
  FUSIONLLM_ASSIGN_OR_RETURN(const bool allowed, Allowed(engine.at(0), spec, tensor_cores));
  if (!allowed) return absl::UnimplementedError(absl::StrCat("its engine ", number.at(0), " computes otherwise"));
  FUSIONLLM_ASSIGN_OR_RETURN(CudnnAlgorithm algorithm, Plan(library, target, std::move(graph), std::move(configuration)));
  if (algorithm.workspace_bytes > kMaxConvolutionWorkspaceBytes) {
    return absl::UnimplementedError(absl::StrCat("its engine ", number.at(0), " takes ", algorithm.workspace_bytes, " bytes"));
  }
  algorithm.engine = number.at(0);
  algorithm.tensor_cores = tensor_cores;
  return algorithm;
}

}  // namespace

absl::StatusOr<std::vector<CudnnAlgorithm>> AlgorithmsFor(const CudnnLibrary& library, const CudnnTarget& target,
                                                          const ConvolutionSpec& spec, size_t max) {
  auto graph = std::make_shared<CudnnGraph>(library, spec);
  FUSIONLLM_RETURN_IF_ERROR(graph->Describe(target));
  std::vector<CudnnAlgorithm> algorithms;
  absl::Status last = absl::UnimplementedError("it has none");
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    absl::StatusOr<std::vector<CudnnDescriptor>> offers = Configurations(library, target, *graph, mode);
    if (!offers.ok()) {
      last = offers.status();
      continue;
    }
    for (CudnnDescriptor& offer : *offers) {
      if (algorithms.size() == max) return algorithms;
      absl::StatusOr<CudnnAlgorithm> algorithm = AlgorithmOf(library, target, spec, graph, std::move(offer));
      if (algorithm.ok()) {
        algorithms.push_back(*std::move(algorithm));
      } else {
        last = algorithm.status();
      }
    }
  }
  if (!algorithms.empty()) return algorithms;
  return absl::UnimplementedError(absl::StrCat("cuDNN knows no way for ", spec.ToString(), ": ", last.message()));
}

absl::StatusOr<CudnnDescriptor> DataOf(const CudnnLibrary& library, const void* first, const void* second, void* result, void* workspace) {
  CudnnDescriptor data(library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  FUSIONLLM_RETURN_IF_ERROR(
      data.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {int64_t{kFirstTensor}, int64_t{kSecondTensor}, int64_t{kResultTensor}})
          .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {const_cast<void*>(first), const_cast<void*>(second), result})
          .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
          .Finalize("giving a convolution its data"));
  return data;
}

}  // namespace fusionllm::kernels::cuda
