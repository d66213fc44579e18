#include "operator/controller/prepare.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/base/truncate_utf8.h"
#include "lib/job/parse.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/controller/job_objects.h"
#include "operator/controller/job_secrets.h"
#include "operator/controller/job_services.h"
#include "operator/controller/leader_epoch.h"
#include "operator/controller/spec_changes.h"
#include "operator/manifests/renewal_schedule.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

using kube::At;
using kube::TextAt;
using nlohmann::json;

constexpr size_t kWaitingBytesMax = 1024;
constexpr char kAwaitsAddress[] = "fusionllm.io/awaits-address";  // payload of such errors

// What the objects beside the owner ConfigMap are made of, and the round in which certificates were looked at: they differ each time they
// are made and are as good as before.
std::string HashOf(const PrepareRequest& request) {
  std::string text = absl::StrCat(manifests::JobDocument(*request.job), "\n", manifests::PlacementText(request.attempt, request.slots),
                                  "\n", manifests::RenewalRound(request.identity.uid, request.now));
  // The document is without them. A job that has none is as it was for an operator that did not count them.
  if (const int64_t spares = request.job->spec.executors.spares; spares > 0) absl::StrAppend(&text, "\n", spares);
  return absl::StrCat(absl::Hex(base::StableHash(text)));
}

// Devices that may have a Service, by what an owner ConfigMap says; one of an older operator names those with an address alone.
std::set<std::string> Served(const std::string& services, const std::string& addresses) {
  std::set<std::string> served = absl::StrSplit(services, ',', absl::SkipEmpty());
  for (const auto& [device, address] : manifests::ParseAddresses(addresses)) served.insert(device);
  // What no Service can be called somebody else has written there.
  constexpr size_t kLongest = 63;
  std::erase_if(served, [](const std::string& device) {
    return device.size() > kLongest ||
           !std::all_of(device.begin(), device.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-'; });
  });
  return served;
}

// The job by the ConfigMap of its document; nothing: an older operator's, perhaps. How many spares it has stands beside the document.
std::optional<job::FusionJob> DocumentedJob(const json& object) {
  absl::StatusOr<job::FusionJob> job = job::ParseFusionJob(TextAt(object, "data", "job.yaml"), "job.yaml");
  if (!job.ok() ||
      !absl::SimpleAtoi(TextAt(object, "metadata", "annotations", manifests::kSparesAnnotation), &job->spec.executors.spares)) {
    return std::nullopt;
  }
  return *std::move(job);
}

bool IsTaken(const std::string& device, const std::vector<manifests::ExecutorSlot>& slots, const std::string& cluster) {
  return std::any_of(slots.begin(), slots.end(),
                     [&](const manifests::ExecutorSlot& slot) { return slot.cluster == cluster && manifests::DeviceName(slot) == device; });
}

class Preparation {
 public:
  Preparation(cache::Member& member, const PrepareRequest& request, std::stop_token stop)
      : member_(member), client_(member.client()), request_(request), id_(request.identity), call_{.stop = std::move(stop)} {}

  absl::StatusOr<Prepared> Hub() {
    const std::string want = HashOf(request_);
    if (std::optional<Prepared> prepared = Already(want, request_.local)) return *std::move(prepared);
    FUSIONLLM_RETURN_IF_ERROR(EnsureOwnerConfigMap());
    const manifests::Owner owner = manifests::OwnerConfigMapReference(id_, owner_config_map_.uid);
    FUSIONLLM_ASSIGN_OR_RETURN(const manifests::JobCredentials authority, secrets_.Authority(owner, request_.begins));
    FUSIONLLM_RETURN_IF_ERROR(secrets_.ForBroker(authority, owner));
    if (!request_.local.empty()) FUSIONLLM_RETURN_IF_ERROR(secrets_.ForExecutors(authority, request_.slots, request_.local, owner));
    FUSIONLLM_RETURN_IF_ERROR(Document(owner));
    const bool remote =
        std::any_of(request_.slots.begin(), request_.slots.end(), [&](const auto& s) { return s.cluster != request_.local; });
    const job::Network& network = request_.job->spec.network;
    JobServices services = Services(request_.local.empty() ? member_.name() : request_.local);
    FUSIONLLM_ASSIGN_OR_RETURN(const ServiceEndpoints broker,
                               services.Make(manifests::BrokerServiceObject(id_, *request_.job, remote, owner), remote,
                                             {.internal = owner_config_map_.notes[manifests::kBrokerAnnotation],
                                              .external = owner_config_map_.notes[manifests::kRemoteBrokerAnnotation]},
                                             network.address));
    // Those of executors before anything is waited for: load balancers take their time at once then.
    FUSIONLLM_ASSIGN_OR_RETURN(const Executors executors, ServeExecutors(services, request_.local, owner));
    for (const std::string* missing : {&broker.missing, &executors.missing}) {
      if (!missing->empty()) return Wait(*missing);
    }
    const bool already = owner_config_map_.notes[manifests::kPreparedAnnotation] == want;
    std::map<std::string, std::string> notes = {
        {manifests::kPreparedAnnotation, want},
        {manifests::kBrokerAnnotation, broker.internal},
        {manifests::kPlacementAnnotation, manifests::PlacementText(request_.attempt, request_.slots)},
        {manifests::kWantedAnnotation, already ? owner_config_map_.notes[manifests::kWantedAnnotation] : absl::StrCat(request_.wanted)}};
    if (remote) notes[manifests::kRemoteBrokerAnnotation] = broker.external;
    FUSIONLLM_RETURN_IF_ERROR(KeepServices(services, executors.addresses, notes));
    // Last: an owner ConfigMap that says so has everything beside it.
    FUSIONLLM_RETURN_IF_ERROR(Mark(notes));
    return Prepared{owner, broker.internal, executors.addresses, changed_};
  }

  absl::StatusOr<Prepared> Remote(cache::Member& hub) {
    const auto center = hub.OwnerConfigMapOf(id_);
    if (!center.has_value() || center->terminating || center->placement != manifests::PlacementText(request_.attempt, request_.slots) ||
        center->remote_broker_address.empty()) {
      return absl::UnavailableError("the hub is not prepared for this attempt yet");
    }
    const std::string& broker = center->remote_broker_address;
    const std::string want = absl::StrCat(HashOf(request_), "-", broker);
    if (std::optional<Prepared> prepared = Already(want, member_.name())) return *std::move(prepared);
    FUSIONLLM_ASSIGN_OR_RETURN(const manifests::JobCredentials authority, secrets_.AuthorityOn(hub));
    FUSIONLLM_RETURN_IF_ERROR(EnsureOwnerConfigMap());
    const manifests::Owner owner = manifests::OwnerConfigMapReference(id_, owner_config_map_.uid);
    FUSIONLLM_RETURN_IF_ERROR(secrets_.ForExecutors(authority, request_.slots, member_.name(), owner));
    JobServices services = Services(member_.name());
    FUSIONLLM_ASSIGN_OR_RETURN(const Executors executors, ServeExecutors(services, member_.name(), owner));
    if (!executors.missing.empty()) return Wait(executors.missing);
    std::map<std::string, std::string> notes = {{manifests::kPreparedAnnotation, want}, {manifests::kBrokerAnnotation, broker}};
    FUSIONLLM_RETURN_IF_ERROR(KeepServices(services, executors.addresses, notes));
    FUSIONLLM_RETURN_IF_ERROR(Mark(notes));
    return Prepared{owner, broker, executors.addresses};
  }

  absl::Status RemoveIdle(const IdleServices& idle) {
    const absl::StatusOr<std::string> answer = client_.Get(manifests::kConfigMaps, {id_.ns, manifests::OwnerConfigMapName(id_)}, call_);
    if (kube::IsApiNotFound(answer.status())) return absl::OkStatus();
    FUSIONLLM_RETURN_IF_ERROR(answer.status());
    FUSIONLLM_RETURN_IF_ERROR(TakeOwnerConfigMap(*answer));
    JobServices services = Services(idle.cluster);
    std::map<std::string, std::string> notes = owner_config_map_.notes, kept;
    notes.erase(manifests::kWaitingAnnotation);
    if (!idle.over) {
      for (const auto& [device, address] : manifests::ParseAddresses(notes[manifests::kExecutorAddressesAnnotation])) {
        if (IsTaken(device, request_.slots, idle.cluster)) kept[device] = address;
      }
    } else if (idle.is_hub) {
      FUSIONLLM_RETURN_IF_ERROR(services.Remove(manifests::BrokerServiceName(id_)));
      for (const char* note : {manifests::kBrokerAnnotation, manifests::kRemoteBrokerAnnotation}) notes.erase(note);
    }
    FUSIONLLM_RETURN_IF_ERROR(KeepServices(services, kept, notes));
    return Mark(notes);
  }

 private:
  // Where executors are reached from other clusters; why that is not known of all of them, if it is not.
  struct Executors {
    std::map<std::string, std::string> addresses;
    std::string missing;
  };

  // What an owner ConfigMap says that has everything beside it.
  std::optional<Prepared> Already(const std::string& want, const std::string& cluster) const {
    if (request_.verify) return std::nullopt;
    const auto owner_config_map = member_.OwnerConfigMapOf(id_);
    if (!owner_config_map.has_value() || owner_config_map->prepared != want || owner_config_map->terminating ||
        !owner_config_map->waiting.empty())
      return std::nullopt;
    Prepared prepared{manifests::OwnerConfigMapReference(id_, owner_config_map->uid), owner_config_map->broker_address,
                      owner_config_map->executor_addresses};
    if (!ServesExecutors()) {
      prepared.executor_addresses.clear();
      return prepared;
    }
    for (const manifests::ExecutorSlot& slot : request_.slots) {
      // By an older operator, which made none.
      if (slot.cluster == cluster && !prepared.executor_addresses.contains(manifests::DeviceName(slot))) return std::nullopt;
    }
    return prepared;
  }

  bool ServesExecutors() const { return !request_.egress_only && manifests::ExecutorsHaveServices(*request_.job, request_.slots); }

  // Removes those of other executors, and notes what there is.
  absl::Status KeepServices(JobServices& services, const std::map<std::string, std::string>& kept,
                            std::map<std::string, std::string>& notes) {
    for (const std::string& device : Served(owner_config_map_.notes[manifests::kExecutorServicesAnnotation],
                                            owner_config_map_.notes[manifests::kExecutorAddressesAnnotation])) {
      if (!kept.contains(device)) FUSIONLLM_RETURN_IF_ERROR(services.Remove(manifests::ExecutorServiceName(id_, device)));
    }
    for (const char* note : {manifests::kExecutorServicesAnnotation, manifests::kExecutorAddressesAnnotation}) notes.erase(note);
    if (kept.empty()) return absl::OkStatus();
    notes[manifests::kExecutorServicesAnnotation] =
        absl::StrJoin(kept, ",", [](std::string* out, const auto& entry) { out->append(entry.first); });
    notes[manifests::kExecutorAddressesAnnotation] = manifests::AddressesText(kept);
    return absl::OkStatus();
  }

  // Before they are made: whatever comes between, somebody knows of them.
  absl::Status NoteServices(const std::string& cluster) {
    std::set<std::string> served = Served(owner_config_map_.notes[manifests::kExecutorServicesAnnotation],
                                          owner_config_map_.notes[manifests::kExecutorAddressesAnnotation]);
    const size_t noted = served.size();
    for (const manifests::ExecutorSlot& slot : request_.slots) {
      if (slot.cluster == cluster) served.insert(manifests::DeviceName(slot));
    }
    if (served.size() == noted) return absl::OkStatus();
    owner_config_map_.notes[manifests::kExecutorServicesAnnotation] = absl::StrJoin(served, ",");
    return Mark(owner_config_map_.notes);
  }

  JobServices Services(const std::string& cluster) { return {client_, id_, cluster, request_.node_address, call_}; }

  absl::StatusOr<Executors> ServeExecutors(JobServices& services, const std::string& cluster, const manifests::Owner& owner) {
    Executors executors;
    if (!ServesExecutors()) return executors;
    const std::map<std::string, std::string> noted =
        manifests::ParseAddresses(owner_config_map_.notes[manifests::kExecutorAddressesAnnotation]);
    FUSIONLLM_RETURN_IF_ERROR(NoteServices(cluster));
    for (const manifests::ExecutorSlot& slot : request_.slots) {
      if (slot.cluster != cluster) continue;
      const auto before = noted.find(manifests::DeviceName(slot));
      FUSIONLLM_ASSIGN_OR_RETURN(const ServiceEndpoints endpoints,
                                 services.Make(manifests::ExecutorServiceObject(id_, *request_.job, slot, owner), /*external=*/true,
                                               {.external = before == noted.end() ? "" : before->second}));
      if (endpoints.missing.empty()) {
        executors.addresses[manifests::DeviceName(slot)] = endpoints.external;
      } else if (executors.missing.empty()) {
        executors.missing = endpoints.missing;
      }
    }
    return executors;
  }

  // Says in the owner ConfigMap, from where it gets into the job's status, what has to be there first. All else that the owner ConfigMap
  // says stays: pods of this attempt may be running, and are to be found.
  absl::Status Wait(const std::string& why) {
    const std::string text = base::TruncateUtf8(why, kWaitingBytesMax);
    if (owner_config_map_.notes[manifests::kWaitingAnnotation] != text) {
      owner_config_map_.notes[manifests::kWaitingAnnotation] = text;
      FUSIONLLM_RETURN_IF_ERROR(Mark(owner_config_map_.notes));
    }
    absl::Status waits = absl::UnavailableError(text);
    waits.SetPayload(kAwaitsAddress, {});
    return waits;
  }

  // The job as its broker reads it.
  absl::Status Document(const manifests::Owner& owner) {
    const json wanted = manifests::JobDocumentObject(id_, *request_.job, owner);
    FUSIONLLM_ASSIGN_OR_RETURN(const json there, objects_.Find(manifests::kConfigMaps, manifests::JobDocumentName(id_)));
    const auto spares = [](const json& object) { return TextAt(object, "metadata", "annotations", manifests::kSparesAnnotation); };
    if (At(there, "data") == At(wanted, "data") && spares(there) == spares(wanted) && OwnerUidOf(there) == owner.uid) {
      return absl::OkStatus();
    }
    const std::optional<job::FusionJob> from = DocumentedJob(there), to = DocumentedJob(wanted);
    if (from.has_value() && to.has_value()) changed_ = DescribeSpecChanges(*from, *to);
    return objects_.Put(manifests::kConfigMaps, wanted, there);
  }

  // Makes the job's owner ConfigMap, or reads the one that is there.
  absl::Status EnsureOwnerConfigMap() {
    const kube::ObjectKey key{id_.ns, manifests::OwnerConfigMapName(id_)};
    bool there = request_.verify;
    if (request_.fence != nullptr) {
      FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<StampedOwnerConfigMap> claimed,
                                 StampLeaderEpoch(member_, id_, *request_.fence, call_.stop));
      there = claimed.has_value();
    }
    if (there) {
      const absl::StatusOr<std::string> answer = client_.Get(manifests::kConfigMaps, key, call_);
      if (!kube::IsApiNotFound(answer.status())) return answer.ok() ? TakeOwnerConfigMap(*answer) : answer.status();
    }
    absl::StatusOr<std::string> answer =
        client_.Create(manifests::kConfigMaps, id_.ns, OwnerConfigMap().dump(), {.field_manager = manifests::kFieldManager}, call_);
    if (answer.ok()) member_.Wrote(id_.uid, manifests::kConfigMaps, *answer);
    if (!answer.ok() && kube::IsApiAlreadyExists(answer.status())) answer = client_.Get(manifests::kConfigMaps, key, call_);
    FUSIONLLM_RETURN_IF_ERROR(answer.status());
    return TakeOwnerConfigMap(*answer);
  }

  absl::Status TakeOwnerConfigMap(const std::string& text) {
    const std::string name = manifests::OwnerConfigMapName(id_);
    const json owner_config_map = kube::ParseJson(text);
    const json& metadata = At(owner_config_map, "metadata");
    if (TextAt(metadata, "labels", manifests::kJobUidLabel) != id_.uid) {
      // Of a job of the same name that is no more, and goes with its objects; or somebody's who is none of ours to overwrite.
      return objects_.NameConflict(manifests::kConfigMaps, name);
    }
    if (metadata.contains("deletionTimestamp")) {
      return absl::UnavailableError(absl::StrCat("ConfigMap ", name, " in cluster ", member_.name(), " is still being deleted"));
    }
    int64_t epoch = 0;
    const std::string carried = TextAt(metadata, "annotations", manifests::kEpochAnnotation);
    if (request_.fence != nullptr && absl::SimpleAtoi(carried, &epoch) && epoch > request_.fence->epoch()) {
      return absl::UnavailableError(absl::StrCat("ConfigMap ", name, " in cluster ", member_.name(), " was claimed meanwhile"));
    }
    owner_config_map_ = {TextAt(metadata, "uid"), TextAt(metadata, "resourceVersion")};
    for (const char* note : {manifests::kPreparedAnnotation, manifests::kBrokerAnnotation, manifests::kPlacementAnnotation,
                             manifests::kWantedAnnotation, manifests::kRemoteBrokerAnnotation, manifests::kExecutorAddressesAnnotation,
                             manifests::kExecutorServicesAnnotation, manifests::kWaitingAnnotation}) {
      if (const std::string text = TextAt(metadata, "annotations", note); !text.empty()) owner_config_map_.notes[note] = text;
    }
    owner_config_map_.marked = owner_config_map_.notes;
    return absl::OkStatus();
  }

  json OwnerConfigMap() const {
    json owner_config_map = manifests::OwnerConfigMapObject(id_, member_.name());
    if (request_.fence != nullptr)
      owner_config_map["metadata"]["annotations"][manifests::kEpochAnnotation] = absl::StrCat(request_.fence->epoch());
    return owner_config_map;
  }

  absl::Status Mark(std::map<std::string, std::string> annotations) {
    std::erase_if(annotations, [](const auto& note) { return note.second.empty(); });
    if (annotations == owner_config_map_.marked) return absl::OkStatus();
    json owner_config_map = OwnerConfigMap();
    // As it was when this began: who has claimed it since must not be overwritten.
    owner_config_map["metadata"]["resourceVersion"] = owner_config_map_.resource_version;
    for (const auto& [key, value] : annotations) owner_config_map["metadata"]["annotations"][key] = value;
    const kube::ObjectKey key{id_.ns, manifests::OwnerConfigMapName(id_)};
    const absl::StatusOr<std::string> answer =
        client_.Apply(manifests::kConfigMaps, key, owner_config_map.dump(), {.field_manager = manifests::kFieldManager}, call_);
    if (answer.ok()) {
      member_.Wrote(id_.uid, manifests::kConfigMaps, *answer);
      owner_config_map_.resource_version = TextAt(kube::ParseJson(*answer), "metadata", "resourceVersion");
      owner_config_map_.marked = std::move(annotations);
    }
    if (!kube::IsApiConflict(answer.status())) return answer.status();
    return absl::UnavailableError(absl::StrCat("ConfigMap ", key.name, " in cluster ", member_.name(), " was changed meanwhile"));
  }

  cache::Member& member_;
  kube::ApiClient& client_;
  const PrepareRequest& request_;
  const manifests::JobIdentity& id_;
  const kube::CallOptions call_;
  const JobObjects objects_{member_, id_, call_};
  std::string changed_;
  JobSecrets secrets_{member_, id_, request_.now, request_.authorities, call_};
  struct {
    std::string uid, resource_version;
    std::map<std::string, std::string> notes;   // ours, as they were, and what is to be written besides
    std::map<std::string, std::string> marked;  // as the server has them
  } owner_config_map_;
};

}  // namespace

absl::StatusOr<Prepared> PrepareRemote(cache::Member& member, cache::Member& hub, const PrepareRequest& request, std::stop_token stop) {
  return Preparation(member, request, std::move(stop)).Remote(hub);
}

absl::Status RemoveIdleServices(cache::Member& member, const PrepareRequest& request, const IdleServices& idle, std::stop_token stop) {
  return Preparation(member, request, std::move(stop)).RemoveIdle(idle);
}

bool HasIdleServices(const cache::OwnerConfigMapView& owner_config_map, const std::vector<manifests::ExecutorSlot>& slots,
                     const IdleServices& idle) {
  if (owner_config_map.terminating) return false;
  const std::set<std::string> served =
      Served(owner_config_map.executor_services, manifests::AddressesText(owner_config_map.executor_addresses));
  // The hub's waits for its broker's address, perhaps.
  if (idle.over) return !served.empty() || (idle.is_hub && (!owner_config_map.broker_address.empty() || !owner_config_map.waiting.empty()));
  return std::any_of(served.begin(), served.end(), [&](const std::string& device) { return !IsTaken(device, slots, idle.cluster); });
}

bool AwaitsAddress(const absl::Status& status) { return status.GetPayload(kAwaitsAddress).has_value(); }

absl::StatusOr<Prepared> PrepareHub(cache::Member& hub, const PrepareRequest& request, std::stop_token stop) {
  return Preparation(hub, request, std::move(stop)).Hub();
}

}  // namespace fusionllm::op::controller
