#include "lib/kernels/prepared_op.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::kernels {
namespace {

bool MovesElements(OpKind kind) {
  constexpr std::array kMovers = {OpKind::kPlaceholder, OpKind::kReshape, OpKind::kFlatten, OpKind::kTranspose,
                                  OpKind::kConcat,      OpKind::kSplit,   OpKind::kSlice,   OpKind::kPadSlice};
  return std::find(kMovers.begin(), kMovers.end(), kind) != kMovers.end();
}

}  // namespace

std::string PreparedOp::Prefix() const { return absl::StrCat("op '", name, "' (", opdag::Name(kind), "): "); }

absl::StatusOr<PreparedOp> PrepareOp(const opdag::Graph& graph, const opdag::Op& op) {
  PreparedOp prepared{.name = op.name, .kind = op.kind, .attributes = op.attributes};
  const auto collect = [&](const auto& ids, const auto& table, std::vector<tensor::TensorType>& types) {
    for (const auto id : ids) {
      if (id < 0 || static_cast<size_t>(id) >= table.size()) return false;
      types.push_back(table[id].type);
    }
    return true;
  };
  if (!collect(op.inputs, graph.values(), prepared.inputs) || !collect(op.parameters, graph.parameters(), prepared.parameters) ||
      !collect(op.outputs, graph.values(), prepared.outputs)) {
    return absl::InvalidArgumentError(absl::StrCat(prepared.Prefix(), "names a value or parameter that the graph does not have"));
  }
  return prepared;
}

absl::StatusOr<std::vector<PreparedFusedOp>> PrepareFusedOps(const opdag::Graph& graph, std::span<const FusedOp> row) {
  std::vector<PreparedFusedOp> prepared;
  for (size_t i = 0; i < row.size(); ++i) {
    const auto& [op, wanted] = row[i];
    FUSIONLLM_ASSIGN_OR_RETURN(PreparedOp types, PrepareOp(graph, op));
    size_t through = 0;
    if (i > 0) {
      const std::vector<opdag::ValueId>& before = row[i - 1].op.outputs;
      while (through < op.inputs.size() && (before.empty() || op.inputs[through] != before[0])) ++through;
      if (through == op.inputs.size()) {
        return absl::InvalidArgumentError(absl::StrCat(types.Prefix(), "does not read output 0 of '", row[i - 1].op.name, "'"));
      }
    }
    prepared.push_back({.op = std::move(types), .through = static_cast<int>(through), .keeps_output = wanted});
  }
  return prepared;
}

bool MovesBytesOnly(const PreparedOp& op) {
  if (!MovesElements(op.kind)) return false;
  const tensor::DType dtype = op.outputs[0].dtype;
  const auto same = [dtype](const tensor::TensorType& type) { return type.dtype == dtype; };
  return std::all_of(op.inputs.begin(), op.inputs.end(), same) && std::all_of(op.outputs.begin(), op.outputs.end(), same);
}

absl::Status CheckComputesInF32(const PreparedOp& op) {
  if (MovesBytesOnly(op)) return absl::OkStatus();
  for (const auto* types : {&op.inputs, &op.parameters, &op.outputs}) {
    for (const tensor::TensorType& type : *types) {
      if (!tensor::IsFloating(type.dtype) || type.dtype == tensor::DType::kF32) continue;
      return absl::UnimplementedError(absl::StrCat(op.Prefix(), "computes in f32 only, not on ", type.ToString()));
    }
  }
  return absl::OkStatus();
}

bool Accumulates(const KernelArguments& arguments, int index) {
  return static_cast<size_t>(index) < arguments.accumulate.size() && arguments.accumulate[index];
}

float* OutputOrNull(const KernelArguments& arguments, int index) {
  return static_cast<size_t>(index) < arguments.outputs.size() ? arguments.outputs[index].f32() : nullptr;
}

int NormalizeAxis(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }

std::array<int64_t, 2> Pair(const opdag::Attributes& attributes, absl::string_view name, std::array<int64_t, 2> fallback) {
  const std::vector<int64_t> values = attributes.Ints(name);
  if (values.empty()) return fallback;
  return {values.front(), values.back()};
}

std::vector<int64_t> BroadcastStrides(const tensor::Shape& from, const tensor::Shape& to) {
  std::vector<int64_t> strides(to.rank(), 0);
  int64_t stride = 1;
  for (int back = 1; back <= from.rank() && back <= to.rank(); ++back) {
    if (from.dim(-back) != 1) strides[to.rank() - back] = stride;
    stride *= from.dim(-back);
  }
  return strides;
}

AxisView AroundAxis(const tensor::Shape& shape, int axis) {
  AxisView view;
  for (int i = 0; i < shape.rank(); ++i) (i < axis ? view.outer : i == axis ? view.extent : view.inner) *= shape.dim(i);
  return view;
}

absl::Status CheckRange(const PreparedOp& op, absl::string_view what, const int32_t* values, int64_t count, int64_t limit,
                        int64_t ignored) {
  for (int64_t i = 0; i < count; ++i) {
    if ((values[i] < 0 || values[i] >= limit) && values[i] != ignored) {
      return absl::InvalidArgumentError(
          absl::StrCat(op.Prefix(), what, " at position ", i, " is ", values[i], ", outside [0, ", limit, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::kernels
