#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/job/fusion_job.h"
#include "lib/job/name.h"
#include "lib/kubeapi/crd.h"
#include "lib/models/families.h"

namespace fusionllm::kubeapi {
namespace {

using models::Family;
using Reason = Rule::Reason;

constexpr char kRunning[] = "must not change while the job runs: set spec.suspend first";

// Two values of an optional field are the same, absence included.
std::string Same(const std::string& field) {
  return absl::StrCat("has(self.", field, ") == has(oldSelf.", field, ") && (!has(self.", field, ") || self.", field, " == oldSelf.", field,
                      ")");
}

// A field that only one sort of what stands at `path` has.
Rule Belongs(const std::string& path, const char* sort, const char* owner, const char* what, const char* field) {
  return {path,
          absl::StrCat("self.", sort, " == '", owner, "' || !has(self.", field, ")"),
          absl::StrCat("belongs to ", what, " ", owner),
          absl::StrCat(".", field),
          Reason::kForbidden,
          absl::StrCat("'belongs to ", what, " ", owner, ", this is ' + self.", sort)};
}

void AddLifeRules(std::vector<Rule>& rules) {
  rules.push_back(
      {"", absl::StrCat("size(self.metadata.name) <= ", job::kMaxJobName, " && self.metadata.name.matches('", job::kJobNamePattern, "')"),
       absl::StrCat("metadata.name: must be ", job::kJobNameRule), ""});
  rules.push_back({"",
                   "self.spec.suspend == oldSelf.spec.suspend || !has(oldSelf.status) || !has(oldSelf.status.conditions) || "
                   "!oldSelf.status.conditions.exists(c, c.type in ['Complete', 'Failed'] && c.status == 'True')",
                   "must not change once the job is Complete or Failed", ".spec.suspend", Reason::kForbidden});
  rules.push_back({"spec", Same("managedBy"), "must not change", ".managedBy", Reason::kForbidden});
  for (const char* field : {"model", "data", "training", "strategy", "compression", "network", "broker"}) {
    rules.push_back(
        {"spec", absl::StrCat("oldSelf.suspend || (", Same(field), ")"), kRunning, absl::StrCat(".", field), Reason::kForbidden});
  }
}

// "18, 34 or 50".
std::string Alternatives(const std::vector<std::string>& choices) {
  std::vector<std::string> but_last(choices.begin(), choices.end() - 1);
  return but_last.empty() ? choices.back() : absl::StrCat(absl::StrJoin(but_last, ", "), " or ", choices.back());
}

// A list of texts in CEL.
std::string TextList(const std::vector<std::string>& texts) { return absl::StrCat("['", absl::StrJoin(texts, "', '"), "']"); }

// Whether `field`, which is there, names one of the families.
std::string IsOneOf(absl::string_view field, const std::vector<const Family*>& families) {
  std::vector<std::string> names;
  for (const Family* family : families) names.push_back(family->name());
  return names.size() == 1 ? absl::StrCat(field, " == '", names[0], "'") : absl::StrCat(field, " in ", TextList(names));
}

Rule PresetRule() {
  std::vector<std::string> conditions, sentences, without;
  for (const Family* family : models::AllFamilies()) {
    const std::vector<std::string>& presets = family->facts().presets;
    if (presets.empty()) {
      without.push_back(absl::StrCat(family->name(), " has none"));
      continue;
    }
    conditions.push_back(absl::StrCat("self.family == '", family->name(), "' && string(self.preset) in ", TextList(presets)));
    sentences.push_back(absl::StrCat(Alternatives(presets), " for family ", family->name()));
  }
  without.insert(without.begin(), absl::StrCat("must be ", absl::StrJoin(sentences, ", ")));
  return {"spec.model", absl::StrCat("!has(self.preset) || (has(self.family) && (", absl::StrJoin(conditions, " || "), "))"),
          absl::StrJoin(without, "; "), ".preset"};
}

Rule OwnerRule(const std::string& field) {
  const std::vector<const Family*> owners = models::OwnersOf(field);
  const std::string belongs = absl::StrCat("belongs to ", models::FamiliesText(owners));
  return {"spec.model",
          absl::StrCat("!has(self.config) || !has(self.config.", field, ") || (has(self.family) && ", IsOneOf("self.family", owners), ")"),
          belongs,
          absl::StrCat(".config.", field),
          Reason::kForbidden,
          absl::StrCat("'", belongs, ", this is ' + (has(self.family) ? self.family : 'a graph')")};
}

void AddFamilyRules(std::vector<Rule>& rules) {
  rules.push_back(PresetRule());
  std::set<std::string> fields;  // that have their rule
  for (const Family* family : models::AllFamilies()) {
    for (const std::string& field : family->facts().settings) {
      if (fields.insert(field).second) rules.push_back(OwnerRule(field));
    }
  }
  for (const Family* family : models::AllFamilies()) {
    for (const models::ServerRule& rule : family->facts().server_rules) {
      rules.push_back({"spec.model", absl::StrCat("!has(self.family) || self.family != '", family->name(), "' || (", rule.condition, ")"),
                       rule.message, rule.field, Reason::kRequired});
    }
  }
}

void AddModelRules(std::vector<Rule>& rules) {
  rules.push_back({"spec.model", "has(self.family) != has(self.graph)", "must have exactly one of family and graph", ""});
  rules.push_back({"spec.model.graph", "has(self.file) != has(self.inline)", "must have exactly one of file and inline", ""});
  rules.push_back({"spec", "!has(self.model.graph) || !has(self.model.graph.file) || has(self.model.graph.volume) || has(self.data.volume)",
                   "needs spec.model.graph.volume or spec.data.volume: in a cluster a file comes from a volume", ".model.graph.file"});
  AddFamilyRules(rules);
}

// As base::IsUri and base::ParseObjectUri have it, but for the length of keys.
std::string IsUri(const char* field) { return absl::StrCat("self.", field, ".matches('^[A-Za-z0-9]+://')"); }

Rule Uri(const std::string& path, const char* field, const char* unless = "") {
  return {path,
          absl::StrCat(unless, "!", IsUri(field), " || (self.", field,
                       ".matches('^s3://[a-z0-9][-.a-z0-9]{1,61}[a-z0-9](//|/([^/[:cntrl:]]+/?)*)?$') && !self.", field,
                       ".matches('^s3://[^/]*[.][.]|/[.][.]?(/|$)'))"),
          "a URI must be s3://BUCKET/KEY: a bucket of 3 to 63 lower-case letters, digits, '-' and '.', and a key with something, neither . "
          "nor .., between its slashes",
          absl::StrCat(".", field)};
}

void AddCheckpointRules(std::vector<Rule>& rules) {
  rules.push_back(Uri("spec.model.init", "from", "!has(self.from) || "));
  rules.push_back({"spec.model.graph", absl::StrCat("!has(self.file) || !", IsUri("file")),
                   "must be a file: a graph is not read from an object store", ".file"});
  rules.push_back(Uri("spec.checkpoint", "path"));
  rules.push_back(Uri("spec.checkpoint", "resume"));
  rules.push_back(Uri("spec.checkpoint.replica", "path"));
  for (const char* place : {"spec.checkpoint", "spec.checkpoint.replica"}) {
    rules.push_back({place, absl::StrCat("!has(self.volume) || !", IsUri("path")), "belongs to a path that is a folder, not to a URI",
                     ".volume", Reason::kForbidden});
  }
  rules.push_back({"spec.checkpoint.replica", "self.path != ''", "must not be empty", ".path"});
  rules.push_back({"spec.checkpoint",
                   "!has(self.replica) || has(self.replica.volume) || !(self.replica.path in [self.path, self.path + '/']) && "
                   "self.replica.path + '/' != self.path",
                   "must be another place than spec.checkpoint.path", ".replica.path"});
}

void AddDataRules(std::vector<Rule>& rules) {
  const std::vector<const Family*> of_tokens = models::FamiliesOf(models::Samples::kTokens);
  const std::string fits = absl::StrCat(models::FamiliesText(of_tokens), of_tokens.size() == 1 ? " trains" : " train",
                                        " on text or tokens, the others on images: cifar10, idx, shapes");
  rules.push_back(
      {"spec",
       absl::StrCat("!has(self.model.family) || (", IsOneOf("self.model.family", of_tokens), ") == (self.data.kind in ['text', 'tokens'])"),
       fits, ".data.kind", Reason::kInvalid, absl::StrCat("'", fits, "; this is ' + self.model.family + ' on ' + self.data.kind")});
  rules.push_back(Belongs("spec.data", "kind", "tokens", "data of kind", "tokenDtype"));
  rules.push_back(Belongs("spec.data", "kind", "shapes", "data of kind", "shapes"));
  rules.push_back({"spec",
                   "!has(self.training) || !has(self.training.evaluation) || self.training.evaluation.everySteps == 0 || "
                   "has(self.data.validation)",
                   "needs spec.data.validation: there is nothing to evaluate on", ".training.evaluation.everySteps"});
}

void AddTrainingRules(std::vector<Rule>& rules) {
  rules.push_back({"spec.training", "type(self.microBatchSize) == string || self.globalBatchSize % int(self.microBatchSize) == 0",
                   "must divide globalBatchSize", ".microBatchSize"});
  rules.push_back({"spec.training",
                   "!has(self.schedule) || !has(self.schedule.minLearningRate) || !has(self.optimizer) || "
                   "!has(self.optimizer.learningRate) || self.schedule.minLearningRate <= self.optimizer.learningRate",
                   "must be at most spec.training.optimizer.learningRate", ".schedule.minLearningRate"});
  for (const char* field : {"beta1", "beta2", "epsilon"})
    rules.push_back(Belongs("spec.training.optimizer", "name", "adamw", "optimizer", field));
  for (const char* field : {"momentum", "nesterov"}) rules.push_back(Belongs("spec.training.optimizer", "name", "sgd", "optimizer", field));
  rules.push_back({"spec.training.optimizer", "!has(self.nesterov) || !self.nesterov || (has(self.momentum) && self.momentum > 0.0)",
                   "needs momentum above 0", ".nesterov"});
}

void AddPlaceRules(std::vector<Rule>& rules) {
  rules.push_back({"spec",
                   "!has(self.compression) || !has(self.compression.policy) || self.compression.policy == 'none' || "
                   "!has(self.compression.errorFeedback) || !self.compression.errorFeedback || "
                   "!has(self.strategy) || !has(self.strategy.replicas) || self.strategy.replicas == 1",
                   "belongs to one pipeline: of several (spec.strategy.replicas) each has residuals of its own, which no checkpoint holds",
                   ".compression.errorFeedback"});
  rules.push_back({"spec.executors", "!has(self.max) || self.min <= self.max", "must be at least min", ".max"});
  rules.push_back({"spec.executors", "!has(self.replicas) || self.min <= self.replicas", "must be at least min", ".replicas"});
  rules.push_back(
      {"spec.executors", "!has(self.replicas) || !has(self.max) || self.replicas <= self.max", "must be at most max", ".replicas"});
  rules.push_back({"spec.executors",
                   absl::StrCat("!has(self.spares) || self.spares + (has(self.replicas) ? self.replicas : has(self.max) ? self.max : "
                                "self.min) <= ",
                                job::kMaxExecutors),
                   absl::StrCat("must leave room for the others: there are at most ", job::kMaxExecutors, " executors in all"), ".spares"});
  rules.push_back({"spec.placement.clusters[]", "!has(self.max) || self.min <= self.max", "must be at least min", ".max"});
  const struct { const char *bound, *unless; } sums[] = {{"replicas", ""}, {"max", " || has(self.executors.replicas)"}};
  for (const auto& sum : sums) {
    rules.push_back(
        {"spec",
         absl::StrCat("!has(self.placement) || !has(self.placement.clusters) || !has(self.executors) || !has(self.executors.", sum.bound,
                      ")", sum.unless, " || self.placement.clusters.map(c, c.min).sum() <= self.executors.", sum.bound),
         absl::StrCat("the clusters ask for more executors, by their min, than spec.executors.", sum.bound, " allows"),
         ".placement.clusters"});
  }
}

}  // namespace

std::vector<Rule> FusionJobRules() {
  std::vector<Rule> rules;
  AddLifeRules(rules);
  AddModelRules(rules);
  AddCheckpointRules(rules);
  AddDataRules(rules);
  AddTrainingRules(rules);
  AddPlaceRules(rules);
  return rules;
}

std::vector<Rule> FusionClusterRules() {
  return {
      {"",
       absl::StrCat("size(self.metadata.name) <= ", kMaxClusterName, " && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')"),
       absl::StrCat("metadata.name: must be at most ", kMaxClusterName,
                    " lower-case letters, digits and '-', the first and the last not '-': Pods are named after it"),
       ""},
      {"spec", "[has(self.kubeConfig), has(self.clusterProfileRef), has(self.local)].filter(given, given).size() == 1",
       "must have exactly one of kubeConfig, clusterProfileRef and local", ""},
      {"spec", "self.qps <= self.burst", "must be at least qps", ".burst"},
      {"", "!has(self.spec.network) || !has(self.spec.network.links) || self.spec.network.links.all(l, l.to != self.metadata.name)",
       "must not lead to the cluster itself", ".spec.network.links"},
  };
}

}  // namespace fusionllm::kubeapi
