// Names to ids: resolves what the text says, sorts it and builds the graph.
#include <algorithm>
#include <functional>
#include <map>
#include <queue>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/graph_builder.h"
#include "lib/opdag/op_hints.h"
#include "lib/opdag/op_schema.h"
#include "lib/opdag/text.h"
#include "lib/opdag/text_syntax.h"

namespace fusionllm::opdag {
namespace {

using text::GraphText;
using text::Name;
using text::OpStatement;
using text::ParameterStatement;
using text::Position;
using text::Reference;

constexpr size_t kMaxSuggestionCandidates = 10'000;  // a guess among a million would take seconds

// What a graph that people write may hold.
std::vector<std::string> KnownOpTypes() {
  std::vector<std::string> types;
  for (const OpSchema* schema : AllSchemas()) {
    if (!schema->backward_only) types.emplace_back(schema->name());
  }
  return types;
}

std::string NoSuchOpType(const std::string& type) {
  if (const std::string hint = HintForOp(type); !hint.empty()) return absl::StrCat("no op type is named '", type, "'; ", hint);
  const std::vector<std::string> known = KnownOpTypes();
  const std::string near = base::NearestName(type, known);
  return absl::StrCat("no op type is named '", type, "'; ", near.empty() ? "" : absl::StrCat("did you mean '", near, "'? "),
                      "There are: ", absl::StrJoin(known, ", "));
}

struct ResolvedValue {
  int statement = 0;
  int output = 0;
};

class Resolver {
 public:
  Resolver(GraphText graph, absl::string_view file) : text_(std::move(graph)), file_(file), builder_(text_.name) {}

  absl::StatusOr<Graph> Run() {
    FUSIONLLM_RETURN_IF_ERROR(CheckOps());
    FUSIONLLM_RETURN_IF_ERROR(CollectParameters());
    FUSIONLLM_RETURN_IF_ERROR(ResolveInputs());
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<int> order, Sort());
    first_output_.assign(text_.ops.size(), kNone);
    for (const int statement : order) FUSIONLLM_RETURN_IF_ERROR(Build(statement));
    FUSIONLLM_RETURN_IF_ERROR(CheckParametersUsed());
    ValueId loss = kNone;
    Position position;
    if (text_.loss) {
      position = text_.loss->name.position;
      FUSIONLLM_ASSIGN_OR_RETURN(const ResolvedValue value, Resolve(*text_.loss));
      loss = builder_.Output(first_output_[value.statement], value.output);
    }
    absl::StatusOr<Graph> graph = builder_.Finish(loss);
    if (!graph.ok()) return Error(position, graph.status().message());
    return graph;
  }

 private:
  absl::Status Error(Position position, absl::string_view reason) const { return text::ErrorAt(file_, position, reason); }

  absl::Status CheckOps() {
    for (int i = 0; i < static_cast<int>(text_.ops.size()); ++i) {
      const OpStatement& op = text_.ops[i];
      const OpSchema* schema = FindSchema(op.type.text);
      if (schema == nullptr) {
        return Error(op.type.position, NoSuchOpType(op.type.text));
      }
      if (schema->backward_only)
        return Error(op.type.position, absl::StrCat("'", op.type.text, "' is an op that only differentiation makes"));
      const absl::Status fits = CheckSignature(*schema, op.attributes, op.inputs.size());
      if (!fits.ok()) return Error(op.type.position, absl::StrCat("op '", op.results[0].text, "' (", op.type.text, ") ", fits.message()));
      const int outputs = schema->output_count(op.attributes);
      if (static_cast<int>(op.results.size()) > outputs) {
        return Error(op.results[outputs].position, absl::StrCat("'", op.type.text, "' has ", outputs, " outputs, not ", op.results.size()));
      }
      for (int output = 0; output < static_cast<int>(op.results.size()); ++output) {
        const Name& name = op.results[output];
        const auto [first, fresh] = values_.emplace(name.text, ResolvedValue{i, output});
        if (fresh) continue;
        const Position taken_at = text_.ops[first->second.statement].results[first->second.output].position;
        return Error(name.position, absl::StrCat("the name '", name.text, "' is taken, on line ", taken_at.line));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CollectParameters() {
    for (const ParameterStatement& parameter : text_.parameters) {
      if (parameters_.emplace(parameter.name.text, &parameter).second) continue;
      return Error(parameter.name.position, absl::StrCat("parameter '", parameter.name.text, "' is described twice"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ResolvedValue> Resolve(const Reference& reference) const {
    const auto found = values_.find(reference.name.text);
    if (found == values_.end()) {
      std::vector<std::string> names;
      if (values_.size() <= kMaxSuggestionCandidates) {
        for (const auto& [name, value] : values_) names.push_back(name);
      }
      const std::string near = base::NearestName(reference.name.text, names);
      return Error(reference.name.position, absl::StrCat("nothing is named '", reference.name.text, "'",
                                                         near.empty() ? "" : absl::StrCat("; did you mean '", near, "'?")));
    }
    ResolvedValue value = found->second;
    if (reference.output.empty()) return value;
    const OpStatement& op = text_.ops[value.statement];
    const OpSchema* schema = FindSchema(op.type.text);
    const int outputs = schema->output_count(op.attributes);
    std::vector<std::string> names;
    for (int i = 0; i < outputs; ++i) names.push_back(OutputName(*schema, i));
    const auto output = std::find(names.begin(), names.end(), reference.output);
    if (value.output != 0 || output == names.end()) {
      return Error(reference.name.position, absl::StrCat("'", reference.name.text, "' has no output '", reference.output, "' (it has ",
                                                         absl::StrJoin(names, ", "), ")"));
    }
    value.output = static_cast<int>(output - names.begin());
    return value;
  }

  absl::Status ResolveInputs() {
    inputs_.resize(text_.ops.size());
    for (size_t i = 0; i < text_.ops.size(); ++i) {
      for (const Reference& reference : text_.ops[i].inputs) {
        FUSIONLLM_ASSIGN_OR_RETURN(const ResolvedValue value, Resolve(reference));
        inputs_[i].push_back(value);
      }
    }
    return absl::OkStatus();
  }

  // Kahn's algorithm; of the ops that are ready the earliest in the text goes first.
  absl::StatusOr<std::vector<int>> Sort() const {
    std::vector<int> missing(text_.ops.size());
    std::vector<std::vector<int>> readers(text_.ops.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      missing[i] = static_cast<int>(inputs_[i].size());
      for (const ResolvedValue& input : inputs_[i]) readers[input.statement].push_back(static_cast<int>(i));
    }
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (size_t i = 0; i < missing.size(); ++i) {
      if (missing[i] == 0) ready.push(static_cast<int>(i));
    }
    std::vector<int> order;
    while (!ready.empty()) {
      const int statement = ready.top();
      ready.pop();
      order.push_back(statement);
      for (const int reader : readers[statement]) {
        if (--missing[reader] == 0) ready.push(reader);
      }
    }
    if (order.size() < text_.ops.size()) return CycleError(missing);
    return order;
  }

  // Every op left over reads another one left over: walking up from any of them must come round.
  absl::Status CycleError(const std::vector<int>& missing) const {
    constexpr size_t kNamed = 16;
    int at = static_cast<int>(std::find_if(missing.begin(), missing.end(), [](int count) { return count > 0; }) - missing.begin());
    std::vector<int> step_of(text_.ops.size(), -1);
    std::vector<int> path;
    while (step_of[at] < 0) {
      step_of[at] = static_cast<int>(path.size());
      path.push_back(at);
      at = std::find_if(inputs_[at].begin(), inputs_[at].end(), [&](const ResolvedValue& input) {
             return missing[input.statement] > 0;
           })->statement;
    }
    std::vector<std::string> names;
    for (size_t i = path.size(); i-- > static_cast<size_t>(step_of[at]) && names.size() < kNamed;) {
      names.push_back(absl::StrCat("'", text_.ops[path[i]].results[0].text, "'"));
    }
    return Error(text_.ops[at].results[0].position,
                 absl::StrCat("ops read each other in a cycle: ", absl::StrJoin(names, " -> "), names.size() == kNamed ? " ..." : ""));
  }

  absl::Status Build(int statement) {
    const OpStatement& op = text_.ops[statement];
    const OpSchema* schema = FindSchema(op.type.text);
    const int count = schema->parameter_count(op.attributes);
    if (!op.parameters.empty() && static_cast<int>(op.parameters.size()) != count) {
      return Error(op.parameters[0].position, absl::StrCat("op '", op.results[0].text, "' (", op.type.text, ") has ", count,
                                                           " parameters and names ", op.parameters.size()));
    }
    std::vector<ParameterOverride> choices;
    for (int slot = 0; slot < count; ++slot) {
      ParameterOverride choice;
      choice.name = op.parameters.empty() ? absl::StrCat(op.results[0].text, ".", schema->parameters[slot]) : op.parameters[slot].text;
      if (const auto found = parameters_.find(choice.name); found != parameters_.end()) {
        choice.initializer = found->second->initializer;
        choice.trainable = found->second->trainable;
      }
      choices.push_back(std::move(choice));
    }
    std::vector<ValueId> inputs;
    for (const ResolvedValue& input : inputs_[statement]) inputs.push_back(builder_.Output(first_output_[input.statement], input.output));
    first_output_[statement] = builder_.Add(op.results[0].text, op.type.text, std::move(inputs), op.attributes, choices);
    return builder_.status().ok() ? absl::OkStatus() : Error(op.results[0].position, builder_.status().message());
  }

  absl::Status CheckParametersUsed() const {
    for (const ParameterStatement& statement : text_.parameters) {
      const ParameterId id = builder_.graph().FindParameter(statement.name.text);
      if (id == kNone) return Error(statement.name.position, absl::StrCat("no op uses the parameter '", statement.name.text, "'"));
      const tensor::TensorType& type = builder_.graph().parameter(id).type;
      if (type == statement.type) continue;
      return Error(statement.name.position, absl::StrCat("parameter '", statement.name.text, "' is described as ",
                                                         statement.type.ToString(), " and its op needs ", type.ToString()));
    }
    return absl::OkStatus();
  }

  GraphText text_;
  absl::string_view file_;
  GraphBuilder builder_;
  std::map<std::string, ResolvedValue> values_;
  std::map<std::string, const ParameterStatement*> parameters_;
  std::vector<std::vector<ResolvedValue>> inputs_;  // by statement
  std::vector<ValueId> first_output_;               // by statement; kNone before it is built
};

}  // namespace

absl::StatusOr<Graph> ParseGraph(absl::string_view text, absl::string_view file) {
  FUSIONLLM_ASSIGN_OR_RETURN(GraphText parsed, text::ParseSyntax(text, file));
  return Resolver(std::move(parsed), file).Run();
}

}  // namespace fusionllm::opdag
