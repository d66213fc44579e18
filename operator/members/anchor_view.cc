#include "operator/members/anchor_view.h"

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/watch/object.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op {

using nlohmann::json;

absl::StatusOr<AnchorView> ReadAnchor(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ObjectPtr decoded, kube::DecodeMetadata(text));
  const kube::ObjectMeta& meta = decoded->meta;
  const json object = kube::ParseJson(text);
  const auto annotation = [&](const char* name) { return kube::TextAt(object, "metadata", "annotations", name); };
  int64_t epoch = 0;
  if (!absl::SimpleAtoi(annotation(kEpochAnnotation), &epoch) || epoch < 0) epoch = 0;
  int64_t wanted = 0;
  if (!absl::SimpleAtoi(annotation(kWantedAnnotation), &wanted) || wanted < 0) wanted = 0;
  return AnchorView{.ns = meta.ns,
                    .name = meta.name,
                    .uid = meta.uid,
                    .job = std::string(meta.Label(kJobLabel)),
                    .job_uid = std::string(meta.Label(kJobUidLabel)),
                    .hub = std::string(meta.Label(kHubLabel)),
                    .epoch = epoch,
                    .preserved = !annotation(kPreservedAnnotation).empty(),
                    .prepared = annotation(kPreparedAnnotation),
                    .broker_address = annotation(kBrokerAnnotation),
                    .remote_broker_address = annotation(kRemoteBrokerAnnotation),
                    .placement = annotation(kPlacementAnnotation),
                    .wanted = wanted,
                    .executor_addresses = ParseAddresses(annotation(kExecutorAddressesAnnotation)),
                    .waiting = annotation(kWaitingAnnotation),
                    .terminating = !meta.deletion_timestamp.empty()};
}

}  // namespace fusionllm::op
