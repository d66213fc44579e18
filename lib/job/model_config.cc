#include "lib/job/model_config.h"

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/job/checks.h"

namespace fusionllm::job {
namespace {

// Visitor that collects the names of fields that a job gives; absence is their default.
class GivenFields {
 public:
  static constexpr bool kFillsIn = false;

  template <class T>
  void Field(absl::string_view name, T& value, const Rule&, absl::string_view) {
    if (value != T()) names_.emplace_back(name);
  }

  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

// Reports the overrides that other families own.
void CheckOwners(const Model& model, const models::Family* family, const Report& report) {
  GivenFields given;
  models::ModelSettings settings = model.config;
  Visit(given, settings);
  for (const std::string& name : given.names()) {
    const std::vector<const models::Family*> owners = models::OwnersOf(name);
    bool owned = false;
    for (const models::Family* owner : owners) owned = owned || owner == family;
    if (!owned) report({absl::StrCat("spec.model.config.", name)}, absl::StrCat("belongs to ", models::FamiliesText(owners)));
  }
}

void CheckDataFits(const Spec& spec, const models::Family& family, const Report& report) {
  const models::Samples wanted = family.facts().samples;
  if (wanted == models::SamplesOf(spec.data.kind)) return;
  report({"spec.data.kind", "spec.model.family"},
         absl::StrCat("family ", family.name(), " trains on ", KindsOf(wanted), ", got ", ToString(spec.data.kind)));
}

std::optional<ResolvedModel> ResolveReporting(const Spec& spec, const Report& report) {
  const Model& model = spec.model;
  if (model.family.has_value() == model.graph.has_value()) {
    report({"spec.model"}, "must have exactly one of family and graph");
    return std::nullopt;
  }
  const models::Family* const family = FamilyOf(model);
  CheckOwners(model, family, report);
  if (family == nullptr) {
    if (model.graph->file.has_value() == model.graph->inline_text.has_value()) {
      report({"spec.model.graph"}, "must have exactly one of file and inline");
    }
    if (model.preset) report({"spec.model.preset"}, "belongs to a family, not to a graph");
    return ResolvedModel();
  }
  CheckDataFits(spec, *family, report);
  const data::ShapesConfig shapes = {.image_size = spec.data.shapes.image_size, .num_classes = spec.data.shapes.num_classes};
  return ResolvedModel{.family = family,
                       .sizes = family->Resolve({.preset = model.preset,
                                                 .settings = model.config,
                                                 .sequence_length = spec.training.sequence_length,
                                                 .data_kind = spec.data.kind,
                                                 .shapes = shapes},
                                                report)};
}

}  // namespace

const models::Family* FamilyOf(const Model& model) { return model.family ? &models::FamilyOf(*model.family) : nullptr; }

std::string KindsOf(models::Samples samples) {
  return samples == models::Samples::kTokens ? "text or tokens" : "images (cifar10, idx, shapes)";
}

void CheckModel(const Spec& spec, const Report& report) { ResolveReporting(spec, report); }

absl::StatusOr<ResolvedModel> ResolveModel(const Spec& spec) {
  std::vector<std::string> findings;
  std::optional<ResolvedModel> model =
      ResolveReporting(spec, [&](std::initializer_list<absl::string_view> paths, absl::string_view message) {
        findings.push_back(absl::StrCat(*paths.begin(), ": ", message));
      });
  if (!findings.empty() || !model) return absl::InvalidArgumentError(absl::StrJoin(findings, "\n"));
  return *std::move(model);
}

}  // namespace fusionllm::job
