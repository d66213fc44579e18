#include "lib/wire/replan_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "lib/base/status_macros.h"
#include "lib/wire/json_reader.h"

namespace fusionllm::wire {
namespace {

using nlohmann::json;

constexpr double kMaxChangeSeconds = 1e15;
constexpr int64_t kMaxMovedBytes = int64_t{1} << 60;
constexpr size_t kMaxChangeReasonBytes = 64 << 10;
constexpr ReplanDecision kDecisions[] = {ReplanDecision::kStay, ReplanDecision::kMove, ReplanDecision::kMustMove};

// A document that this library has printed, as a value to put into another.
json Value(const plan::PlanResult& answer) { return base::ParseJson(PrintPlan(answer)); }

json ToJson(const ReplanDocument& document) {
  json moved = json::array();
  for (const MovedOp& move : document.moved) {
    moved.push_back(
        {{"op", move.op}, {"from", move.from.empty() ? json(nullptr) : json(move.from)}, {"to", move.to}, {"bytes", move.bytes}});
  }
  return {{"decision", std::string(Name(document.decision))},
          {"reason", document.reason},
          {"running_step_seconds", document.running_step_seconds.has_value() ? json(*document.running_step_seconds) : json(nullptr)},
          {"gain_seconds", document.gain_seconds},
          {"plan", Value(document.plan)},
          {"migration", {{"bytes", document.moved_bytes}, {"transfer_seconds", document.transfer_seconds}, {"moved", std::move(moved)}}}};
}

bool IsNull(const json& object, const char* key) { return !object.contains(key) || object.at(key).is_null(); }

ReplanDocument ReadReplan(const json& text, ObjectReader& in) {
  ReplanDocument document;
  std::string decision;
  in.Text("decision", decision);
  bool known = false;
  for (const ReplanDecision one : kDecisions) {
    if (decision == Name(one)) document.decision = one, known = true;
  }
  if (!known) in.Fail("decision", absl::StrCat("'", decision, "' is none of stay, move, must-move"));
  in.Text("reason", document.reason, kMaxChangeReasonBytes);
  if (!IsNull(text, "running_step_seconds"))
    in.Number("running_step_seconds", document.running_step_seconds.emplace(), 0, kMaxChangeSeconds);
  in.Number("gain_seconds", document.gain_seconds, 0, kMaxChangeSeconds);
  in.Object("migration", [&](ObjectReader& migration) {
    migration.Integer("bytes", document.moved_bytes, 0, kMaxMovedBytes);
    migration.Number("transfer_seconds", document.transfer_seconds, 0, kMaxChangeSeconds);
    const json& moves = text.at("migration");
    size_t index = 0;
    migration.Objects("moved", kMaxPlanOps, [&](ObjectReader& reader) {
      MovedOp& move = document.moved.emplace_back();
      reader.Text("op", move.op);
      if (!IsNull(moves.at("moved").at(index++), "from")) reader.Text("from", move.from);
      reader.Text("to", move.to);
      reader.Integer("bytes", move.bytes, 0, kMaxMovedBytes);
    });
  });
  return document;
}

}  // namespace

absl::string_view Name(ReplanDecision decision) {
  switch (decision) {
    case ReplanDecision::kStay:
      return "stay";
    case ReplanDecision::kMove:
      return "move";
    default:
      return "must-move";
  }
}

std::string PrintReplan(const ReplanResult& answer) {
  if (const auto* refusal = std::get_if<plan::PlanError>(&answer)) return PrintPlan(*refusal);
  return PrintJson(ToJson(std::get<ReplanDocument>(answer)));
}

absl::StatusOr<ReplanResult> ParseReplan(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json value, ParseJson(text, "replan"));
  absl::Status status;
  ObjectReader in(value, "replan", status);
  if (!status.ok()) return status;
  if (in.Has("refused")) {
    FUSIONLLM_ASSIGN_OR_RETURN(const plan::PlanResult refusal, ParsePlan(text));
    return ReplanResult(std::get<plan::PlanError>(refusal));
  }
  ReplanDocument document = ReadReplan(value, in);
  if (status.ok() && !value.contains("plan")) in.Fail("plan", "is missing");
  if (!status.ok()) return status;
  FUSIONLLM_ASSIGN_OR_RETURN(plan::PlanResult plan, ParsePlan(PrintJson(value.at("plan"))));
  if (!std::holds_alternative<plan::Plan>(plan)) return absl::InvalidArgumentError("replan.plan: is a refusal");
  document.plan = std::get<plan::Plan>(std::move(plan));
  return ReplanResult(std::move(document));
}

}  // namespace fusionllm::wire
