#include "lib/runtime/pass_runner.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/compression/spec.h"
#include "lib/runtime/not_finite.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::runtime {

using opdag::kNone;
using opdag::Op;
using opdag::OpId;
using opdag::ValueId;

namespace {

absl::Status WithOp(const absl::Status& status, const Op& op) {
  const std::string prefix = absl::StrFormat("op '%s' (%s): ", op.name, opdag::Name(op.kind));
  if (absl::StartsWith(status.message(), prefix)) return status;  // kernels name their op where they find the fault
  absl::Status named(status.code(), absl::StrCat(prefix, status.message()));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) { named.SetPayload(type, payload); });
  return named;
}

// Of tensors that are not floats: true.
template <typename Accept>
bool AllFloats(const tensor::ConstTensorView& view, Accept accept) {
  const int64_t count = view.type.elements();
  if (view.type.dtype == tensor::DType::kF32) return std::all_of(view.f32(), view.f32() + count, accept);
  if (view.type.dtype != tensor::DType::kBF16) return true;
  const auto* bfloats = view.as<uint16_t>();
  return std::all_of(bfloats, bfloats + count, [&](uint16_t bits) { return accept(tensor::UpcastBf16(bits)); });
}

bool FitForCodecs(const tensor::ConstTensorView& view) {
  return AllFloats(view, [](float x) { return std::abs(x) <= compression::kMaxMagnitude; });
}

MessageKey KeyOf(const CutEdge& edge, const PassContext& context) {
  return {.step = context.step, .kind = context.kind, .micro_batch = context.micro_batch, .id = edge.value};
}

absl::Status NotFit(const Op& op, const CutEdge& edge, const PassContext& context, const absl::Status& why) {
  return NotFiniteError(absl::StrFormat("op '%s' (%s): its output is not fit to be sent to stage %d at step %d, micro-batch %d: %s",
                                        op.name, opdag::Name(op.kind), edge.peer, context.step, context.micro_batch,
                                        std::string(why.message())));
}

// What a peer sent is no user's input: a message that the codec refuses comes of two builds that differ, or of a defect.
absl::Status NotAsAgreed(const Op& op, const CutEdge& edge, const PassContext& context, const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return WithOp(status, op);
  return absl::InternalError(absl::StrFormat("op '%s' (%s): what stage %d sent of it at step %d, micro-batch %d is not as agreed: %s",
                                             op.name, opdag::Name(op.kind), edge.peer, context.step, context.micro_batch,
                                             std::string(status.message())));
}

bool IsPlaceholder(const Op& op) { return op.kind == opdag::OpKind::kPlaceholder; }

double QuantileOf(std::vector<int64_t>& numbers, double quantile) {
  const auto rank = static_cast<size_t>(quantile * static_cast<double>(numbers.size()));
  const auto number = numbers.begin() + static_cast<std::ptrdiff_t>(std::min(rank, numbers.size() - 1));
  std::nth_element(numbers.begin(), number, numbers.end());
  return static_cast<double>(*number);
}

}  // namespace

PassRunner::PassRunner(const autodiff::TrainingGraph& training, const StageProgram& program, ParameterStore& store,
                       kernels::Backend& backend, EdgeCodec& codec, MessagePort& port, Inbox& inbox, DeviceThrottle& throttle,
                       FillPlaceholder fill)
    : training_(training),
      program_(program),
      store_(store),
      backend_(backend),
      memory_(backend.memory()),
      codec_(codec),
      port_(port),
      inbox_(inbox),
      throttle_(throttle),
      fill_(std::move(fill)),
      kernels_(training.graph.ops().size()),
      sent_bytes_(program.stages, 0) {}

absl::StatusOr<std::unique_ptr<PassRunner>> PassRunner::Create(const autodiff::TrainingGraph& training, const StageProgram& program,
                                                               int slots, ParameterStore& store, kernels::Backend& backend,
                                                               EdgeCodec& codec, MessagePort& port, Inbox& inbox, DeviceThrottle& throttle,
                                                               FillPlaceholder fill) {
  if (!codec.memory().on_host() && &codec.memory() != &backend.memory()) {
    return absl::InvalidArgumentError("the codec of the stage's edges is for tensors of another device");
  }
  std::unique_ptr<PassRunner> runner(new PassRunner(training, program, store, backend, codec, port, inbox, throttle, std::move(fill)));
  FUSIONLLM_RETURN_IF_ERROR(runner->Allocate(slots));
  FUSIONLLM_RETURN_IF_ERROR(runner->Bind(program.forward, slots, runner->forward_));
  FUSIONLLM_RETURN_IF_ERROR(runner->Bind(program.backward, slots, runner->backward_));
  FUSIONLLM_RETURN_IF_ERROR(runner->Bind(program.evaluate, 1, runner->evaluate_));
  FUSIONLLM_ASSIGN_OR_RETURN(runner->fused_[&program.forward], FusePass(training.graph, program.forward, runner->forward_, backend));
  FUSIONLLM_ASSIGN_OR_RETURN(runner->fused_[&program.backward], FusePass(training.graph, program.backward, runner->backward_, backend));
  FUSIONLLM_ASSIGN_OR_RETURN(runner->fused_[&program.evaluate], FusePass(training.graph, program.evaluate, runner->evaluate_, backend));
  size_t workspace_bytes = 0;
  for (const auto& kernel : runner->kernels_) {
    if (kernel != nullptr) workspace_bytes = std::max(workspace_bytes, kernel->workspace_bytes());
  }
  for (const auto& [pass, rows] : runner->fused_) {
    for (const auto& [position, row] : rows) workspace_bytes = std::max(workspace_bytes, row.kernel->workspace_bytes());
  }
  FUSIONLLM_ASSIGN_OR_RETURN(runner->workspace_, runner->memory_.Allocate(workspace_bytes));
  for (const Pass* pass : {&program.forward, &program.backward, &program.evaluate}) {
    const kernels::Mode mode = pass == &program.evaluate ? kernels::Mode::kEvaluate : kernels::Mode::kTrain;
    runner->capture_regions_[pass] = CaptureRegionsOf(*pass, mode, training.graph, runner->kernels_);
  }
  if (!codec.memory().on_host()) {
    runner->sends_ = std::make_unique<SendQueue>(port, program.stages, [&inbox](const absl::Status& status) { inbox.Cancel(status); });
  }
  return runner;
}

absl::Status PassRunner::Allocate(int slots) {
  FUSIONLLM_ASSIGN_OR_RETURN(scratch_, memory_.Allocate(program_.scratch_bytes));
  for (int slot = 0; slot < slots; ++slot) {
    FUSIONLLM_ASSIGN_OR_RETURN(tensor::MemoryBlock block, memory_.Allocate(program_.stash_bytes_per_slot));
    slots_.push_back(std::move(block));
  }
  return absl::OkStatus();
}

tensor::TensorView PassRunner::HostRoom(const tensor::TensorView& view) {
  if (memory_.on_host()) return view;
  if (staging_.size() < view.type.bytes()) staging_ = tensor::Buffer(view.type.bytes());
  return {view.type, staging_.data()};
}

absl::StatusOr<tensor::ConstTensorView> PassRunner::ReadableByHost(const tensor::TensorView& view) {
  const tensor::TensorView room = HostRoom(view);
  if (!memory_.on_host()) FUSIONLLM_RETURN_IF_ERROR(memory_.CopyOut(room.data, view.data, view.type.bytes()));
  return room;
}

bool PassRunner::AllFinite(const tensor::TensorView& view) {
  if (view.data == nullptr || !tensor::IsFloating(view.type.dtype)) return true;
  const absl::StatusOr<tensor::ConstTensorView> here = ReadableByHost(view);
  return here.ok() && AllFloats(*here, [](float x) { return std::isfinite(x); });
}

absl::StatusOr<std::unique_ptr<tensor::PendingCopy>> PassRunner::ScalarAfter(const Pass& pass, ValueId value, int slot) const {
  return memory_.StartCopyOut(ViewOf(pass, value, slot).data, sizeof(float));
}

absl::Status PassRunner::FinishSends() { return sends_ == nullptr ? absl::OkStatus() : sends_->Drain(); }

tensor::TensorView PassRunner::ViewOf(const Pass& pass, ValueId value, int slot) const {
  const Location& location = pass.location[value];
  const tensor::TensorType& type = training_.graph.value(value).type;
  switch (location.arena) {
    case Arena::kNone:
      return {type, nullptr};
    case Arena::kScratch:
      return {type, scratch_.data() + location.offset};
    case Arena::kStash:
      return {type, slots_[slot].data() + location.offset};
    case Arena::kPerUseGradient:
      return store_.per_use_gradient(location.use);
  }
  return {type, nullptr};
}

absl::Status PassRunner::Bind(const Pass& pass, int slots, std::vector<std::vector<BoundOp>>& bound) {
  for (const ProgramOp& program_op : pass.ops) {
    const Op& op = training_.graph.op(program_op.op);
    if (IsPlaceholder(op) || program_op.view || kernels_[program_op.op] != nullptr) continue;
    FUSIONLLM_ASSIGN_OR_RETURN(kernels_[program_op.op], backend_.Prepare(training_.graph, op));
  }
  bound.resize(slots);
  for (int slot = 0; slot < slots; ++slot) {
    for (const ProgramOp& program_op : pass.ops) {
      const Op& op = training_.graph.op(program_op.op);
      BoundOp& out = bound[slot].emplace_back();
      for (const ValueId input : op.inputs) out.inputs.emplace_back(ViewOf(pass, input, slot));
      for (const opdag::ParameterId parameter : op.parameters) out.parameters.push_back(store_.parameter(parameter));
      out.accumulate = std::make_unique<bool[]>(op.outputs.size());
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        out.outputs.push_back(ViewOf(pass, op.outputs[i], slot));
        out.accumulate[i] = pass.location[op.outputs[i]].arena == Arena::kPerUseGradient;
      }
    }
  }
  return absl::OkStatus();
}

std::vector<BoundOp>& PassRunner::BoundOf(const Pass& pass, int slot) {
  if (&pass == &program_.forward) return forward_[slot];
  if (&pass == &program_.backward) return backward_[slot];
  return evaluate_[slot];
}

std::vector<MessageKey> PassRunner::Awaited(const Pass& pass, const PassContext& context) const {
  std::vector<MessageKey> keys;
  for (const CutEdge& edge : pass.receives) {
    keys.push_back(KeyOf(edge, context));
  }
  return keys;
}

absl::Status PassRunner::Receive(const Pass& pass, const PassContext& context) {
  for (const CutEdge& edge : pass.receives) {
    FUSIONLLM_ASSIGN_OR_RETURN(const Payload payload, inbox_.Take(KeyOf(edge, context)));
    const int64_t begin = CpuNow();
    const tensor::TensorView view = ViewOf(pass, edge.value, context.slot);
    const tensor::TensorView room = CodecTakesTensors() ? view : HostRoom(view);
    if (absl::Status status = codec_.Decode(edge, context.slot, payload, room); !status.ok()) {
      return NotAsAgreed(training_.graph.op(training_.graph.value(edge.value).producer), edge, context, status);
    }
    if (room.data != view.data) FUSIONLLM_RETURN_IF_ERROR(memory_.CopyIn(view.data, room.data, view.type.bytes()));
    throttle_.ChargeCpu(CpuNow() - begin);
  }
  return absl::OkStatus();
}

absl::Status PassRunner::SendEdges(const Pass& pass, const ProgramOp& op, const PassContext& context) {
  for (const CutEdge& edge : op.sends) {
    const int64_t begin = CpuNow();
    const tensor::TensorView view = ViewOf(pass, edge.value, context.slot);
    if (sends_ != nullptr) {
      FUSIONLLM_RETURN_IF_ERROR(StartSending(edge, op, view, context));
      continue;
    }
    absl::StatusOr<tensor::ConstTensorView> value = view;
    if (!CodecTakesTensors()) value = ReadableByHost(view);
    if (!value.ok()) return WithOp(value.status(), training_.graph.op(op.op));
    absl::StatusOr<Payload> payload = codec_.Encode(edge, context.slot, *value, /*training=*/context.kind == MessageKind::kValue);
    if (!payload.ok() && !FitForCodecs(*value)) return NotFit(training_.graph.op(op.op), edge, context, payload.status());
    if (!payload.ok()) return WithOp(payload.status(), training_.graph.op(op.op));
    throttle_.ChargeCpu(CpuNow() - begin);
    throttle_.CatchUp();
    sent_bytes_[edge.peer] += static_cast<int64_t>(payload->size());
    FUSIONLLM_RETURN_IF_ERROR(port_.Send(edge.peer, KeyOf(edge, context), *std::move(payload)));
  }
  return absl::OkStatus();
}

absl::Status PassRunner::StartSending(const CutEdge& edge, const ProgramOp& op, const tensor::TensorView& view,
                                      const PassContext& context) {
  auto message = codec_.StartEncode(edge, context.slot, view, /*training=*/context.kind == MessageKind::kValue);
  const auto explain = [&op = training_.graph.op(op.op), edge, context](const absl::Status& status) {
    // All that the numbers of a tensor can be blamed for.
    return absl::IsInvalidArgument(status) ? NotFit(op, edge, context, status) : WithOp(status, op);
  };
  if (!message.ok()) return explain(message.status());
  sends_->Push({.to_stage = edge.peer, .key = KeyOf(edge, context), .pending = *std::move(message), .explain = explain});
  return absl::OkStatus();
}

absl::Status PassRunner::RunOp(BoundOp& bound, const ProgramOp& program_op, const PassContext& context) {
  if (program_op.view) return absl::OkStatus();
  const Op& op = training_.graph.op(program_op.op);
  const int64_t begin = CpuNow();
  if (IsPlaceholder(op)) {
    const tensor::TensorView& view = bound.outputs[0];
    const tensor::TensorView room = HostRoom(view);
    FUSIONLLM_RETURN_IF_ERROR(fill_(context, op, room));
    if (!memory_.on_host()) FUSIONLLM_RETURN_IF_ERROR(memory_.CopyIn(view.data, room.data, view.type.bytes()));
    throttle_.ChargeOp(program_op.op, CpuNow() - begin, context.learn_times);
    return absl::OkStatus();
  }
  FUSIONLLM_RETURN_IF_ERROR(RunKernel(*kernels_[program_op.op], bound, program_op, context));
  throttle_.ChargeOp(program_op.op, CpuNow() - begin, context.learn_times);
  return absl::OkStatus();
}

absl::Status PassRunner::RunKernel(kernels::Kernel& kernel, const BoundOp& bound, const ProgramOp& program_op, const PassContext& context) {
  const absl::Status status = kernel.Run(
      {.inputs = bound.inputs,
       .parameters = bound.parameters,
       .outputs = bound.outputs,
       .accumulate = context.accumulate ? std::span<const bool>(bound.accumulate.get(), bound.outputs.size()) : std::span<const bool>(),
       .mode = program_op.recompute ? kernels::Mode::kRecompute : context.mode,
       .random = context.random,
       .workspace = {workspace_.data(), workspace_.size()}});
  return status.ok() ? status : WithOp(status, training_.graph.op(program_op.op));
}

absl::StatusOr<size_t> PassRunner::RunFrom(const Pass& pass, size_t i, size_t end, const PassContext& context) {
  const std::map<size_t, FusedRow>& rows = fused_.at(&pass);
  if (const auto row = rows.find(i); row != rows.end() && i + row->second.ops <= end) {
    FUSIONLLM_RETURN_IF_ERROR(RunKernel(*row->second.kernel, row->second.bound[context.slot], pass.ops[i], context));
    return row->second.ops;
  }
  FUSIONLLM_RETURN_IF_ERROR(RunOp(BoundOf(pass, context.slot)[i], pass.ops[i], context));
  return 1;
}

absl::StatusOr<double> PassRunner::Run(const Pass& pass, const PassContext& context) {
  FUSIONLLM_RETURN_IF_ERROR(inbox_.status());  // a stage that waits for no message would never hear of it
  throttle_.BeginPass(context.at_once);
  TimedPass timed_pass{.pass = &pass, .micro_batch = context.micro_batch};
  if (first_event_ != nullptr) {
    FUSIONLLM_ASSIGN_OR_RETURN(timed_pass.begin, backend_.RecordEvent());
  }
  FUSIONLLM_RETURN_IF_ERROR(Receive(pass, context));
  FUSIONLLM_RETURN_IF_ERROR(RunCaptureRegions(pass, context));
  if (first_event_ != nullptr) {
    FUSIONLLM_ASSIGN_OR_RETURN(timed_pass.end, backend_.RecordEvent());
    timed_passes_.push_back(std::move(timed_pass));
  }
  const double seconds = throttle_.EndPass();
  return first_event_ == nullptr ? seconds : 0;
}

absl::Status PassRunner::RunCaptureRegions(const Pass& pass, const PassContext& context) {
  for (const CaptureRegion& segment : capture_regions_.at(&pass)) {
    const auto run = [&]() -> absl::Status {
      for (size_t i = segment.begin; i < segment.end;) {
        FUSIONLLM_ASSIGN_OR_RETURN(const size_t ops, RunFrom(pass, i, segment.end, context));
        i += ops;
      }
      return absl::OkStatus();
    };
    // One op alone is started by one call as it is.
    const bool worth_capturing = !synchronous() && segment.is_replayable && segment.runs > 1;
    const bool adds = context.accumulate && &pass == &program_.backward;
    const GraphCaptureCache::Key key{.pass = &pass, .slot = context.slot, .accumulate = adds, .begin = segment.begin};
    FUSIONLLM_RETURN_IF_ERROR(worth_capturing ? graph_captures_.Run(key, backend_, run) : run());
    FUSIONLLM_RETURN_IF_ERROR(SendEdges(pass, pass.ops[segment.end - 1], context));
  }
  return absl::OkStatus();
}

absl::Status PassRunner::BeginDeviceTimes() {
  timed_passes_.clear();
  FUSIONLLM_ASSIGN_OR_RETURN(first_event_, backend_.RecordEvent());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PassRunner::DeviceTime>> PassRunner::TakeDeviceTimes() {
  std::vector<DeviceTime> times;
  for (const TimedPass& timed_pass : timed_passes_) {
    FUSIONLLM_ASSIGN_OR_RETURN(const double begin, timed_pass.begin->SecondsSince(*first_event_));
    FUSIONLLM_ASSIGN_OR_RETURN(const double end, timed_pass.end->SecondsSince(*first_event_));
    times.push_back({.pass = timed_pass.pass,
                     .micro_batch = timed_pass.micro_batch,
                     .begin_ns = static_cast<int64_t>(begin * 1e9),
                     .end_ns = static_cast<int64_t>(end * 1e9)});
  }
  timed_passes_.clear();
  first_event_ = nullptr;
  return times;
}

std::string PassRunner::FirstNotFinite(int slot) {
  const Pass& pass = program_.forward;
  const auto bad = [&](ValueId value) { return pass.location[value].arena == Arena::kStash && !AllFinite(ViewOf(pass, value, slot)); };
  for (const CutEdge& edge : pass.receives) {
    if (bad(edge.value)) {
      return absl::StrFormat("op '%s' of stage %d, whose output came in not finite",
                             training_.graph.op(training_.graph.value(edge.value).producer).name, edge.peer);
    }
  }
  for (const ProgramOp& program_op : pass.ops) {
    const Op& op = training_.graph.op(program_op.op);
    for (const opdag::ParameterId parameter : op.parameters) {
      if (!AllFinite(store_.parameter(parameter))) {
        return absl::StrFormat("op '%s', whose parameter '%s' is not finite", op.name, training_.graph.parameter(parameter).name);
      }
    }
    if (std::any_of(op.outputs.begin(), op.outputs.end(), bad)) return absl::StrFormat("op '%s', whose output is not finite", op.name);
  }
  return "";
}

absl::Status PassRunner::TimePass(const Pass& pass, const PassContext& context, bool thread_cpu, std::vector<std::vector<int64_t>>& taken) {
  const auto now = [thread_cpu] { return thread_cpu ? ThreadCpuNanoseconds() : MonotonicNanoseconds(); };
  std::vector<BoundOp>& bound = BoundOf(pass, context.slot);
  taken.resize(pass.ops.size());
  int64_t begin = now();
  for (size_t i = 0; i < pass.ops.size(); ++i) {
    if (pass.ops[i].view) {  // no time at all, not that of looking at the clock
      taken[i].push_back(0);
      continue;
    }
    FUSIONLLM_RETURN_IF_ERROR(RunOp(bound[i], pass.ops[i], context));
    FUSIONLLM_RETURN_IF_ERROR(backend_.Synchronize());
    const int64_t end = now();
    taken[i].push_back(end - begin);
    begin = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<OpTime>> PassRunner::Measure(const MeasureOptions& options) {
  // What other stages would send is missing: zeros, so that ids and labels are in range and no NaN slows an instruction down.
  FUSIONLLM_RETURN_IF_ERROR(memory_.Zero(scratch_.data(), scratch_.size()));
  for (const tensor::MemoryBlock& slot : slots_) FUSIONLLM_RETURN_IF_ERROR(memory_.Zero(slot.data(), slot.size()));
  const int slots = static_cast<int>(slots_.size());
  if (slots < 1) return absl::FailedPreconditionError("a stage without slots for micro-batches cannot be measured");
  std::vector<std::vector<int64_t>> forward_ns, backward_ns;
  const auto context_of = [&](int micro_batch) {
    return PassContext{
        .step = 1, .micro_batch = micro_batch % slots, .slot = micro_batch % slots, .accumulate = true, .mode = kernels::Mode::kRecompute};
  };
  // A micro-batch goes back when as many are open as there are slots, which all have been used once before anything is timed.
  const int64_t begin_ns = MonotonicNanoseconds();
  int timed = 0;
  const auto wants_more = [&] {
    const double elapsed_s = 1e-9 * static_cast<double>(MonotonicNanoseconds() - begin_ns);
    return timed < (elapsed_s < options.timeout_s ? options.min_micro_batches : 1) ||
           (timed < options.max_micro_batches && elapsed_s < options.seconds);
  };
  for (int i = 0; wants_more(); ++i) {
    if (options.cancelled && options.cancelled()) return absl::CancelledError("measuring was cancelled");
    if (i == slots) {
      forward_ns.clear();
      backward_ns.clear();
    }
    FUSIONLLM_RETURN_IF_ERROR(TimePass(program_.forward, context_of(i), options.thread_cpu, forward_ns));
    if (i + 1 < slots) continue;
    FUSIONLLM_RETURN_IF_ERROR(TimePass(program_.backward, context_of(i + 1 - slots), options.thread_cpu, backward_ns));
    if (i >= slots) ++timed;
  }
  // With recomputation an op stands in both passes.
  std::map<OpId, std::pair<double, int>> sums;
  const auto add = [&](const Pass& pass, std::vector<std::vector<int64_t>>& taken) {
    for (size_t i = 0; i < pass.ops.size(); ++i) {
      auto& [seconds, times] = sums[pass.ops[i].op];
      seconds += 1e-9 * QuantileOf(taken[i], options.quantile);
      ++times;
    }
  };
  add(program_.forward, forward_ns);
  add(program_.backward, backward_ns);
  std::vector<OpTime> times;
  for (const auto& [op, sum] : sums) {
    const auto& kernel = kernels_[op];
    times.push_back({.op = op,
                     .seconds = sum.first / sum.second,
                     .workspace_bytes = kernel == nullptr ? 0 : static_cast<int64_t>(kernel->workspace_bytes())});
  }
  return times;
}

}  // namespace fusionllm::runtime
