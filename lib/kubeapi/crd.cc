#include "lib/kubeapi/crd.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/job/describer.h"
#include "lib/job/reference.h"
#include "lib/kubeapi/fusion_cluster_fields.h"
#include "lib/kubeapi/structural_schema.h"
#include "nlohmann/json.hpp"

namespace fusionllm::kubeapi {
namespace {

using nlohmann::ordered_json;

constexpr char kGroup[] = "fusionllm.io";
constexpr char kVersion[] = "v1alpha1";

// The part of a schema at a path such as "spec.placement.clusters[]"; the path must exist.
ordered_json& At(ordered_json& schema, absl::string_view path) {
  ordered_json* at = &schema;
  for (absl::string_view step : absl::StrSplit(path, '.', absl::SkipEmpty())) {
    const bool elements = absl::ConsumeSuffix(&step, "[]");
    at = &at->at("properties").at(std::string(step));
    if (elements) at = &at->at("items");
  }
  return *at;
}

const char* Name(Rule::Reason reason) {
  switch (reason) {
    case Rule::Reason::kInvalid:
      return "FieldValueInvalid";
    case Rule::Reason::kForbidden:
      return "FieldValueForbidden";
    case Rule::Reason::kRequired:
      return "FieldValueRequired";
  }
  return "";
}

void AddRules(const std::vector<Rule>& rules, ordered_json& schema) {
  for (const Rule& rule : rules) {
    ordered_json entry = {{"rule", rule.expression}, {"message", rule.message}};
    if (!rule.message_expression.empty()) entry["messageExpression"] = rule.message_expression;
    entry["reason"] = Name(rule.reason);
    if (!rule.field.empty()) entry["fieldPath"] = rule.field;
    At(schema, rule.path)["x-kubernetes-validations"].push_back(std::move(entry));
  }
}

const job::FieldSchema& Child(const job::FieldSchema& object, absl::string_view name) {
  for (const job::FieldSchema& child : object.children) {
    if (child.name == name) return child;
  }
  return object;
}

ordered_json RootSchema(absl::string_view description, const job::FieldSchema& spec, const job::FieldSchema& status) {
  ordered_json root = {{"description", std::string(description)}, {"type", "object"}, {"required", {"spec"}}};
  ordered_json& properties = root["properties"];
  properties["apiVersion"] = {{"description", "Version of the schema of this object."}, {"type", "string"}};
  properties["kind"] = {{"description", "Kind of this object."}, {"type", "string"}};
  properties["metadata"] = {{"type", "object"}};
  properties["spec"] = StructuralSchema(spec, Defaults::kStatic);
  properties["status"] = StructuralSchema(status, Defaults::kNone);
  return root;
}

// As in meta/v1 LabelSelector.
ordered_json LabelSelector() {
  const ordered_json text = {{"type", "string"}, {"maxLength", 317}};
  const ordered_json values = {{"type", "array"}, {"items", text}, {"maxItems", 64}, {"x-kubernetes-list-type", "atomic"}};
  const ordered_json expression = {
      {"type", "object"},
      {"required", {"key", "operator"}},
      {"properties",
       {{"key", text}, {"operator", {{"type", "string"}, {"enum", {"In", "NotIn", "Exists", "DoesNotExist"}}}}, {"values", values}}}};
  return {{"matchLabels", {{"type", "object"}, {"additionalProperties", text}, {"maxProperties", 64}}},
          {"matchExpressions", {{"type", "array"}, {"items", expression}, {"maxItems", 64}, {"x-kubernetes-list-type", "atomic"}}}};
}

// What the table leaves to the cluster's own types, and what only untyped parts of the schema can say.
void AddHandWritten(ordered_json& schema) {
  ordered_json& selector = At(schema, "spec.placement.clusterSelector");
  selector.erase("x-kubernetes-preserve-unknown-fields");
  selector["properties"] = LabelSelector();

  // 18 and tiny are presets: a number in YAML is one here too.
  ordered_json& preset = At(schema, "spec.model.preset");
  preset.erase("type");
  preset.erase("minLength");
  preset["x-kubernetes-int-or-string"] = true;
  preset["maxLength"] = 16;

  At(schema, "spec.managedBy")["pattern"] = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";

  // CEL cannot see a field without a type. The kinds that need files stand first: theirs is then the finding that is reported.
  At(schema, "spec.data")["oneOf"] = {
      {{"properties", {{"kind", {{"enum", {"text", "tokens", "cifar10", "idx"}}}}}}, {"required", {"path"}}},
      {{"properties", {{"kind", {{"enum", {"shapes"}}}}}}, {"not", {{"required", {"path"}}}}},
  };
  At(schema, "spec.data.validation")["oneOf"] = {{{"required", {"path"}}}, {{"required", {"fraction"}}}};
}

ordered_json Column(const char* name, const char* type, const char* path, const char* description, bool wide = false) {
  ordered_json column = {{"name", name}, {"type", type}, {"jsonPath", path}, {"description", description}};
  if (wide) column["priority"] = 1;
  return column;
}

ordered_json Crd(const char* kind, const char* plural, const char* singular, const char* short_name, const char* scope,
                 ordered_json version) {
  return {{"apiVersion", "apiextensions.k8s.io/v1"},
          {"kind", "CustomResourceDefinition"},
          {"metadata", {{"name", absl::StrCat(plural, ".", kGroup)}}},
          {"spec",
           {{"group", kGroup},
            {"names",
             {{"kind", kind},
              {"listKind", absl::StrCat(kind, "List")},
              {"plural", plural},
              {"singular", singular},
              {"shortNames", {short_name}},
              {"categories", {"all", "fusion"}}}},
            {"scope", scope},
            {"versions", ordered_json::array({std::move(version)})}}}};
}

ordered_json Version(ordered_json schema) {
  ordered_json version = {{"name", kVersion}, {"served", true}, {"storage", true}};
  version["schema"] = {{"openAPIV3Schema", std::move(schema)}};
  version["subresources"] = {{"status", ordered_json::object()}};
  return version;
}

}  // namespace

ordered_json FusionJobCrd() {
  job::FieldSchema status = job::Describer::Root<FusionJobStatus>();
  status.doc = "What has become of the job.";
  const job::FieldSchema table = job::FusionJobSchema();
  ordered_json schema = RootSchema("A model that is trained by executors in one or several clusters.", Child(table, "spec"), status);
  AddHandWritten(schema);
  AddRules(FusionJobRules(), schema);

  ordered_json version = Version(std::move(schema));
  version["subresources"]["scale"] = {{"specReplicasPath", ".spec.executors.replicas"},
                                      {"statusReplicasPath", ".status.replicas"},
                                      {"labelSelectorPath", ".status.selector"}};
  version["selectableFields"] = {{{"jsonPath", ".spec.managedBy"}}, {{"jsonPath", ".spec.queueName"}}, {{"jsonPath", ".status.state"}}};
  version["additionalPrinterColumns"] = {
      Column("State", "string", ".status.state", "Summary of the conditions."),
      Column("Reason", "string", ".status.reason", "Why it is in that state: of the condition that says most."),
      Column("Clusters", "string", ".status.clusters", "Clusters whose executors are all ready, and clusters used."),
      Column("Executors", "string", ".status.executors", "Ready and wanted executors."),
      Column("Step", "integer", ".status.trainerStatus.step", "Steps done."),
      Column("Progress", "string", ".status.trainerStatus.progress", "Share of the steps done."),
      Column("ETA", "string", ".status.trainerStatus.eta", "Until the last step."),
      Column("Age", "date", ".metadata.creationTimestamp", "Since the job was made."),
      Column("Slowest link", "string", ".status.trainerStatus.slowestLink", "Link that holds the steps up most.", true),
      Column("Restarts", "integer", ".status.restarts", "Restarts of the whole job after a failure or a loss.", true),
      Column("Queue", "string", ".spec.queueName", "Name of a queue, for this column alone.", true),
  };
  return Crd("FusionJob", "fusionjobs", "fusionjob", "fj", "Namespaced", std::move(version));
}

ordered_json FusionClusterCrd() {
  const job::FieldSchema table = job::Describer::Root<FusionCluster>();
  ordered_json schema = RootSchema("A cluster that jobs may use.", Child(table, "spec"), Child(table, "status"));
  AddRules(FusionClusterRules(), schema);

  ordered_json version = Version(std::move(schema));
  version["additionalPrinterColumns"] = {
      Column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", "Jobs may use it."),
      Column("Connected", "string", ".status.conditions[?(@.type==\"Connected\")].status", "Its API server is watched."),
      Column("Version", "string", ".status.kubernetesVersion", "Version of its API server."),
      Column("Nodes", "integer", ".status.resourceSummary.readyNodes", "Nodes that take Pods."),
      Column("Executors", "integer", ".status.executors", "Executors that run there."),
      Column("Age", "date", ".metadata.creationTimestamp", "Since it was registered."),
      Column("Region", "string", ".spec.region", "Region.", true),
      Column("Provider", "string", ".spec.provider", "Who runs it.", true),
      Column("Reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason", "Why it is ready or not.", true),
  };
  return Crd("FusionCluster", "fusionclusters", "fusioncluster", "fc", "Cluster", std::move(version));
}

}  // namespace fusionllm::kubeapi
