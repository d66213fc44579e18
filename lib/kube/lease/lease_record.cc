#include "lib/kube/lease/lease_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "lib/kube/api/time.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;

std::string Text(const json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

int64_t Number(const json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

}  // namespace

LeaseRecord::LeaseRecord(const ObjectKey& key, int64_t transitions) : transitions_(transitions) {
  object_ = {{"apiVersion", "coordination.k8s.io/v1"},
             {"kind", "Lease"},
             {"metadata", {{"name", key.name}, {"namespace", key.ns}}},
             {"spec", json::object()}};
}

absl::StatusOr<LeaseRecord> LeaseRecord::Parse(absl::string_view text) {
  LeaseRecord record;
  record.object_ = base::ParseJson(text);
  const json& object = record.object_;
  if (!object.is_object() || Text(object, "kind") != "Lease" || !object.contains("metadata") || !object["metadata"].is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("not a Lease: ", text.substr(0, 128)));
  }
  record.resource_version_ = Text(object["metadata"], "resourceVersion");
  json& spec = record.object_["spec"];
  if (!spec.is_object()) spec = json::object();
  record.holder_ = Text(spec, "holderIdentity");
  record.renew_time_ = Text(spec, "renewTime");
  record.duration_ = absl::Seconds(std::clamp<int64_t>(Number(spec, "leaseDurationSeconds"), 0, 3600));
  record.transitions_ = Number(spec, "leaseTransitions");
  return record;
}

void LeaseRecord::Hold(const std::string& identity, absl::Duration duration, absl::Time now) {
  json& spec = object_["spec"];
  renew_time_ = MicroTimeText(now);
  if (holder_ != identity) {
    if (!resource_version_.empty()) ++transitions_;
    spec["acquireTime"] = renew_time_;
  }
  holder_ = identity;
  duration_ = duration;
  spec["holderIdentity"] = holder_;
  spec["renewTime"] = renew_time_;
  spec["leaseDurationSeconds"] = absl::ToInt64Seconds(duration);
  spec["leaseTransitions"] = transitions_;
}

void LeaseRecord::Release(absl::Time now) {
  json& spec = object_["spec"];
  holder_.clear();
  duration_ = absl::Seconds(1);  // the server takes nothing below
  renew_time_ = MicroTimeText(now);
  spec["holderIdentity"] = "";
  spec["acquireTime"] = renew_time_;
  spec["renewTime"] = renew_time_;
  spec["leaseDurationSeconds"] = 1;
  spec["leaseTransitions"] = transitions_;
}

std::string LeaseRecord::ToJson() const { return object_.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace fusionllm::kube
