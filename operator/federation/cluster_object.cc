#include "operator/federation/cluster_object.h"

#include <nlohmann/json.hpp>
#include <tuple>

#include "lib/base/status_macros.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kubeapi/objects.h"
#include "operator/federation/cluster_facts.h"

namespace fusionllm::op::federation {

bool ClusterObject::IsOlderThan(const ClusterObject& other) const {
  return std::tie(created_at, meta.name) < std::tie(other.created_at, other.meta.name);
}

absl::StatusOr<kube::ObjectPtr> DecodeCluster(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ObjectPtr decoded, kube::DecodeMetadata(text));
  const nlohmann::json whole = kube::ParseJson(text);
  auto object = std::make_shared<ClusterObject>();
  FUSIONLLM_ASSIGN_OR_RETURN(object->cluster, kubeapi::FusionClusterFromObject(whole));
  object->meta = decoded->meta;
  object->created_at = kube::TextAt(whole, "metadata", "creationTimestamp");
  object->generation = kube::IntegerOf(kube::At(whole, "metadata", "generation"), 0);
  object->facts = FactsOf(object->meta, object->cluster);
  return object;
}

}  // namespace fusionllm::op::federation
