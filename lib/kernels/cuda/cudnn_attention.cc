#include "lib/kernels/cuda/cudnn_attention.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"
#include "lib/base/shared_library.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/cudnn_handle.h"

// The library as the frontend looks for its functions.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace fusionllm::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum TensorUid : int64_t { kQ = 1, kK, kV, kY, kLse, kDy, kDq, kDk, kDv };

// What cannot be planned is Unimplemented, whatever the reason: the frontend has one code for an engine that does not support a graph and
// for one that found no memory.
absl::Status ToStatus(fe::error_t error) {
  switch (error.get_code()) {
    case fe::error_code_t::OK:
      return absl::OkStatus();
    case fe::error_code_t::CUDA_API_FAILED:
    case fe::error_code_t::INVALID_CUDA_DEVICE:
    case fe::error_code_t::HANDLE_ERROR:
      return absl::InternalError(absl::StrCat("planning attention: ", error.get_message()));
    default:
      return absl::UnimplementedError(error.get_message());
  }
}

// q, k and v of qkv, or of dqkv: a head's rows are as far apart as tokens are.
std::vector<int64_t> Extents(const AttentionSpec& s) { return {s.batch, s.heads, s.length, s.size}; }
std::vector<int64_t> StridesOfPart(const AttentionSpec& s) {
  const int64_t width = s.heads * s.size;
  return {s.length * 3 * width, s.size, 3 * width, 1};
}
std::vector<int64_t> StridesOfResult(const AttentionSpec& s) {
  const int64_t width = s.heads * s.size;
  return {s.length * width, s.size, width, 1};
}

void DescribePart(const AttentionSpec& s, TensorUid uid, const Tensor& tensor) {
  tensor->set_uid(uid).set_dim(Extents(s)).set_stride(StridesOfPart(s));
}
void DescribeResult(const AttentionSpec& s, TensorUid uid, const Tensor& tensor) {
  tensor->set_uid(uid).set_dim(Extents(s)).set_stride(StridesOfResult(s));
}
void DescribeStatistics(const AttentionSpec& s, const Tensor& tensor) {
  tensor->set_uid(kLse).set_data_type(fe::DataType_t::FLOAT).set_dim({s.batch, s.heads, s.length, 1});
  tensor->set_stride({s.heads * s.length, s.length, 1, 1});
}

template <typename Describe>
Tensor Input(fe::graph::Graph& graph, Describe describe) {
  const auto attributes = std::make_shared<fe::graph::Tensor_attributes>();
  describe(attributes);
  return graph.tensor(*attributes);
}

void AddForward(fe::graph::Graph& graph, const AttentionSpec& s, float scale) {
  const auto part = [&](TensorUid uid) { return Input(graph, [&](const Tensor& tensor) { DescribePart(s, uid, tensor); }); };
  const Tensor q = part(kQ), k = part(kK), v = part(kV);
  auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true).set_attn_scale(scale);
  attributes.set_causal_mask(s.causal);
  const auto [y, lse] = graph.sdpa(q, k, v, attributes);
  y->set_output(true);
  DescribeResult(s, kY, y);
  lse->set_output(true);
  DescribeStatistics(s, lse);
}

void AddBackward(fe::graph::Graph& graph, const AttentionSpec& s, float scale) {
  const auto part = [&](TensorUid uid) { return Input(graph, [&](const Tensor& tensor) { DescribePart(s, uid, tensor); }); };
  const auto result = [&](TensorUid uid) { return Input(graph, [&](const Tensor& tensor) { DescribeResult(s, uid, tensor); }); };
  const Tensor q = part(kQ), k = part(kK), v = part(kV), y = result(kY), dy = result(kDy);
  const Tensor lse = Input(graph, [&](const Tensor& tensor) { DescribeStatistics(s, tensor); });
  auto attributes = fe::graph::SDPA_backward_attributes().set_name("attention_grad").set_attn_scale(scale);
  attributes.set_causal_mask(s.causal);
  const auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, y, dy, lse, attributes);
  for (const auto& [uid, tensor] : {std::pair(kDq, dq), {kDk, dk}, {kDv, dv}}) {
    tensor->set_output(true);
    DescribePart(s, uid, tensor);
  }
}

}  // namespace

// The frontend calls the runtime's functions, too, by a library of its own beside the runtime that is linked here, and throws when it runs
// a plan and does not find one. (Where there is an older runtime as well it says so on stderr, and takes that.)
absl::Status LoadCudnnFrontend() {
  if (!LoadedCudnn().ok()) return LoadedCudnn().status();
  FUSIONLLM_RETURN_IF_ERROR(base::SharedLibrary::Open({"libcudart.so.13"}).status());
  static const bool found = [] {
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
    return fe::cudnn_dlhandle != nullptr;
  }();
  if (!found) return absl::FailedPreconditionError("libcudnn.so.9 was loaded and is not there any more");
  return absl::OkStatus();
}

struct CudnnAttentionGraph::Parts {
  AttentionSpec spec;
  fe::graph::Graph graph;
};

CudnnAttentionGraph::CudnnAttentionGraph(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CudnnAttentionGraph::~CudnnAttentionGraph() = default;

int64_t MaxAttentionWorkspaceBytes(const AttentionSpec& spec) {
  constexpr int64_t kTiles = 128;  // rows are counted in whole ones
  const int64_t rows = spec.batch * spec.heads * ((spec.length + kTiles - 1) / kTiles * kTiles);
  return rows * static_cast<int64_t>(sizeof(float)) * (2 * std::max<int64_t>(spec.size, 64) + 16) + (int64_t{1} << 20);
}

absl::StatusOr<std::shared_ptr<const CudnnAttentionGraph>> CudnnAttentionGraph::Create(const AttentionSpec& spec,
                                                                                       const CudnnAttentionTarget& target) {
  FUSIONLLM_RETURN_IF_ERROR(LoadCudnnFrontend());
  try {
    auto parts = std::make_unique<Parts>();
    parts->spec = spec;
    fe::graph::Graph& graph = parts->graph;
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(target.capability);
    if (target.handle == nullptr) {
      const auto card = std::make_shared<fe::DeviceProperties>();
      std::vector<uint8_t> text(target.described.begin(), target.described.end());
      text.push_back(0);
      FUSIONLLM_RETURN_IF_ERROR(ToStatus(card->deserialize(text)));
      graph.set_device_properties(card);
    }
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(spec.size)));
    if (spec.pass == AttentionPass::kForward) {
      AddForward(graph, spec, scale);
    } else {
      AddBackward(graph, spec, scale);
    }
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(graph.validate()));
    FUSIONLLM_RETURN_IF_ERROR(
        ToStatus(target.handle != nullptr ? graph.build_operation_graph(target.handle) : graph.build_operation_graph()));
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(graph.create_execution_plans({fe::HeurMode_t::A})));
    // It bars what is listed by then.
    if (spec.pass == AttentionPass::kForward) graph.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
    // The first of the library's list that it can make: the choice depends on the spec and the kind of card alone.
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE)));
    const std::shared_ptr<const CudnnAttentionGraph> made(new CudnnAttentionGraph(std::move(parts)));
    if (made->workspace_bytes() > MaxAttentionWorkspaceBytes(spec)) {
      return absl::UnimplementedError(absl::StrCat("cuDNN takes ", made->workspace_bytes(), " bytes for ", spec.ToString()));
    }
    return made;
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(absl::StrCat("planning ", spec.ToString(), ": cuDNN's frontend: ", error.what()));
  }
}

int64_t CudnnAttentionGraph::workspace_bytes() const { return parts_->graph.get_workspace_size(); }

std::string CudnnAttentionGraph::engine() const {
  std::string name;
  return parts_->graph.get_plan_name(name).is_good() ? name : "";
}

absl::Status CudnnAttentionGraph::Run(cudnnHandle_t handle, const AttentionTensors& tensors, void* workspace) const {
  const AttentionSpec& s = parts_->spec;
  const int64_t part_bytes = 2 * s.heads * s.size;
  const auto part_of = [&](const void* tensor, int64_t part) {
    return static_cast<void*>(const_cast<std::byte*>(static_cast<const std::byte*>(tensor)) + part * part_bytes);
  };
  std::unordered_map<int64_t, void*> places = {
      {kQ, part_of(tensors.qkv, 0)}, {kK, part_of(tensors.qkv, 1)}, {kV, part_of(tensors.qkv, 2)}, {kY, tensors.y}, {kLse, tensors.lse}};
  if (s.pass == AttentionPass::kBackward) {
    places[kDy] = const_cast<void*>(tensors.dy);
    for (int64_t part = 0; part < 3; ++part) places[kDq + part] = part_of(tensors.dqkv, part);
  }
  try {
    fe::error_t error = parts_->graph.execute(handle, places, workspace);
    if (error.is_bad()) return absl::InternalError(absl::StrCat("starting ", s.ToString(), ": ", error.get_message()));
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("starting ", s.ToString(), ": ", error.what()));
  }
}

namespace {

class CudnnAttention final : public AttentionPlan {
 public:
  CudnnAttention(const CudnnHandle& cudnn, const AttentionSpec& spec, std::shared_ptr<const CudnnAttentionGraph> graph)
      : cudnn_(cudnn),
        lse_bytes_(spec.pass == AttentionPass::kForward ? sizeof(float) * static_cast<size_t>(spec.rows()) : 0),
        graph_(std::move(graph)) {}
  // The library writes lse whether somebody reads it or not: there is room for it before its own workspace.
  size_t workspace_bytes() const override { return lse_bytes_ + CudnnWorkspaceBytes(graph_->workspace_bytes()); }
  absl::Status Run(const AttentionTensors& tensors, void* workspace) const override {
    AttentionTensors all = tensors;
    if (all.lse == nullptr) all.lse = static_cast<float*>(workspace);
    return graph_->Run(cudnn_.handle, all, CudnnWorkspace(static_cast<std::byte*>(workspace) + lse_bytes_));
  }

 private:
  const CudnnHandle& cudnn_;
  const size_t lse_bytes_;
  const std::shared_ptr<const CudnnAttentionGraph> graph_;
};

// Made once in the process for a spec and a card, for all callers: making one takes seconds. Answers that there is no way are kept, too,
// and no other errors.
absl::StatusOr<std::shared_ptr<const CudnnAttentionGraph>> GraphFor(const CudnnHandle& cudnn, int device, int capability,
                                                                    const AttentionSpec& spec) {
  static base::Mutex mutex;
  static auto* const made ABSL_PT_GUARDED_BY(mutex) =
      new std::map<std::pair<int, AttentionSpec>, absl::StatusOr<std::shared_ptr<const CudnnAttentionGraph>>>;
  const base::MutexLock lock(mutex);
  const std::pair key(device, spec);
  if (const auto found = made->find(key); found != made->end()) return found->second;
  absl::StatusOr<std::shared_ptr<const CudnnAttentionGraph>> graph =
      CudnnAttentionGraph::Create(spec, {.capability = capability, .handle = cudnn.handle});
  if (graph.ok() || absl::IsUnimplemented(graph.status())) made->emplace(key, graph);
  return graph;
}

}  // namespace

AttentionPlanOrError PrepareCudnnAttention(Device& device, const AttentionSpec& spec) {
  FUSIONLLM_ASSIGN_OR_RETURN(const CudnnHandle* const cudnn, CudnnOf(device));
  const DeviceInfo& info = device.info();
  FUSIONLLM_ASSIGN_OR_RETURN(std::shared_ptr<const CudnnAttentionGraph> graph,
                             GraphFor(*cudnn, info.index, 10 * info.major + info.minor, spec));
  return std::make_unique<CudnnAttention>(*cudnn, spec, std::move(graph));
}

}  // namespace fusionllm::kernels::cuda
