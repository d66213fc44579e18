#include "operator/cache/owner_config_map_view.h"

#include "absl/strings/numbers.h"
#include "lib/base/status_macros.h"

namespace fusionllm::op::cache {

bool IsOwnerConfigMapOf(const OwnerConfigMapView& owner_config_map, const manifests::JobIdentity& job) {
  return owner_config_map.ns == job.ns && owner_config_map.name == manifests::OwnerConfigMapName(job) && owner_config_map.job == job.name &&
         owner_config_map.job_uid == job.uid;
}

std::optional<manifests::JobIdentity> JobOf(const OwnerConfigMapView& owner_config_map) {
  manifests::JobIdentity job{
      .name = owner_config_map.job, .ns = owner_config_map.ns, .uid = owner_config_map.job_uid, .origin = "", .hub = owner_config_map.hub};
  if (job.name.empty() || job.uid.empty() || !IsOwnerConfigMapOf(owner_config_map, job)) return std::nullopt;
  return job;
}

absl::StatusOr<OwnerConfigMapView> ReadOwnerConfigMap(absl::string_view text, kube::ObjectMeta* into) {
  kube::ObjectMeta own;
  kube::ObjectMeta& meta = into == nullptr ? own : *into;
  kube::Annotations annotations;
  FUSIONLLM_RETURN_IF_ERROR(kube::ReadAnnotated(text, meta, annotations));
  const auto annotation = [&](const char* name) { return std::string(kube::AnnotationOf(annotations, name)); };
  int64_t epoch = 0;
  if (!absl::SimpleAtoi(annotation(manifests::kEpochAnnotation), &epoch) || epoch < 0) epoch = 0;
  int64_t wanted = 0;
  if (!absl::SimpleAtoi(annotation(manifests::kWantedAnnotation), &wanted) || wanted < 0) wanted = 0;
  return OwnerConfigMapView{.ns = meta.ns,
                            .name = meta.name,
                            .uid = meta.uid,
                            .job = std::string(meta.Label(manifests::kJobLabel)),
                            .job_uid = std::string(meta.Label(manifests::kJobUidLabel)),
                            .hub = std::string(meta.Label(manifests::kHubLabel)),
                            .epoch = epoch,
                            .preserved = !annotation(manifests::kPreservedAnnotation).empty(),
                            .prepared = annotation(manifests::kPreparedAnnotation),
                            .broker_address = annotation(manifests::kBrokerAnnotation),
                            .remote_broker_address = annotation(manifests::kRemoteBrokerAnnotation),
                            .placement = annotation(manifests::kPlacementAnnotation),
                            .wanted = wanted,
                            .executor_addresses = manifests::ParseAddresses(annotation(manifests::kExecutorAddressesAnnotation)),
                            .executor_services = annotation(manifests::kExecutorServicesAnnotation),
                            .waiting = annotation(manifests::kWaitingAnnotation),
                            .terminating = !meta.deletion_timestamp.empty()};
}

}  // namespace fusionllm::op::cache
