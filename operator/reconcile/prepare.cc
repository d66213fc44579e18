#include "operator/reconcile/prepare.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "operator/credentials/job_credentials.h"
#include "operator/manifests/resources.h"
#include "operator/reconcile/claim.h"

namespace fusionllm::op {
namespace {

using nlohmann::json;

// What the objects beside the anchor are made of. Certificates are not: they differ each time they are made and are as good as before.
std::string HashOf(const PrepareRequest& request) {
  const std::string text = absl::StrCat(JobDocument(*request.job), "\n", PlacementText(request.attempt, request.slots));
  return absl::StrCat(absl::Hex(base::StableHash(text)));
}

class Preparation {
 public:
  Preparation(Member& member, const PrepareRequest& request, std::stop_token stop)
      : member_(member), client_(member.client()), request_(request), id_(request.identity), call_{.stop = std::move(stop)} {}

  absl::StatusOr<Prepared> Hub() {
    const std::string want = HashOf(request_);
    if (const auto anchor = member_.AnchorOf(id_.uid); anchor.has_value() && anchor->prepared == want && !anchor->terminating) {
      return Prepared{AnchorOwner(id_, anchor->uid), anchor->broker_address};
    }
    FUSIONLLM_RETURN_IF_ERROR(EnsureAnchor());
    const Owner owner = AnchorOwner(id_, anchor_.uid);
    FUSIONLLM_ASSIGN_OR_RETURN(const JobCredentials credentials, Authority(owner));
    FUSIONLLM_RETURN_IF_ERROR(
        Secret(BrokerSecretName(id_), {"broker.key", "scheduler.key"}, owner, [&] { return credentials.BrokerFiles(request_.now); }));
    if (!request_.local.empty()) FUSIONLLM_RETURN_IF_ERROR(ExecutorSecret(credentials, request_.local, owner));
    FUSIONLLM_RETURN_IF_ERROR(Apply(kConfigMaps, JobDocumentObject(id_, *request_.job, owner)).status());
    const bool remote =
        std::any_of(request_.slots.begin(), request_.slots.end(), [&](const auto& s) { return s.cluster != request_.local; });
    FUSIONLLM_ASSIGN_OR_RETURN(const json service, Apply(kServices, BrokerServiceObject(id_, *request_.job, remote, owner)));
    const std::string host = service.value(json::json_pointer("/spec/clusterIP"), "");
    if (host.empty()) return absl::InternalError(absl::StrCat("Service ", BrokerServiceName(id_), " has no address"));
    std::map<std::string, std::string> notes = {{kPreparedAnnotation, want},
                                                {kBrokerAnnotation, HostPort(host, request_.job->spec.network.port)},
                                                {kPlacementAnnotation, PlacementText(request_.attempt, request_.slots)},
                                                {kWantedAnnotation, absl::StrCat(request_.wanted)}};
    if (remote) {
      FUSIONLLM_ASSIGN_OR_RETURN(notes[kRemoteBrokerAnnotation], RemoteAddress(service));
    }
    // Last: an anchor that says so has everything beside it.
    FUSIONLLM_RETURN_IF_ERROR(Mark(notes));
    return Prepared{owner, notes[kBrokerAnnotation]};
  }

  absl::StatusOr<Prepared> Remote(Member& hub) {
    const auto center = hub.AnchorOf(id_.uid);
    if (!center.has_value() || center->terminating || center->placement != PlacementText(request_.attempt, request_.slots) ||
        center->remote_broker_address.empty()) {
      return absl::UnavailableError("the hub is not prepared for this attempt yet");
    }
    const std::string& broker = center->remote_broker_address;
    const std::string want = absl::StrCat(HashOf(request_), "-", broker);
    if (const auto anchor = member_.AnchorOf(id_.uid); anchor.has_value() && anchor->prepared == want && !anchor->terminating) {
      return Prepared{AnchorOwner(id_, anchor->uid), broker};
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const Files authority, ReadSecret(hub.client(), AuthoritySecretName(id_)));
    FUSIONLLM_ASSIGN_OR_RETURN(const JobCredentials credentials, JobCredentials::FromFiles(authority));
    FUSIONLLM_RETURN_IF_ERROR(EnsureAnchor());
    const Owner owner = AnchorOwner(id_, anchor_.uid);
    FUSIONLLM_RETURN_IF_ERROR(ExecutorSecret(credentials, member_.name(), owner));
    FUSIONLLM_RETURN_IF_ERROR(Mark({{kPreparedAnnotation, want}, {kBrokerAnnotation, broker}}));
    return Prepared{owner, broker};
  }

 private:
  absl::StatusOr<json> Apply(const kube::Resource& resource, const json& object) {
    const kube::ObjectKey key{id_.ns, object.at("metadata").at("name")};
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string answer,
                               client_.Apply(resource, key, object.dump(), {.field_manager = kFieldManager}, call_));
    json parsed = json::parse(answer, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) return absl::InternalError(absl::StrCat("no object in the answer for ", resource.Name(), " ", key.ToString()));
    return parsed;
  }

  // Makes the job's anchor, or reads the one that is there.
  absl::Status EnsureAnchor() {
    const std::string name = AnchorName(id_);
    if (request_.fence != nullptr) FUSIONLLM_RETURN_IF_ERROR(Claim(member_, id_, *request_.fence, call_.stop).status());
    absl::StatusOr<std::string> answer = client_.Create(kConfigMaps, id_.ns, Anchor().dump(), {.field_manager = kFieldManager}, call_);
    if (answer.ok()) member_.Wrote(id_.uid, kConfigMaps, *answer);
    if (!answer.ok() && kube::IsApiAlreadyExists(answer.status())) answer = client_.Get(kConfigMaps, {id_.ns, name}, call_);
    FUSIONLLM_RETURN_IF_ERROR(answer.status());
    const json anchor = json::parse(*answer, nullptr, /*allow_exceptions=*/false);
    const json metadata = anchor.is_object() ? anchor.value("metadata", json::object()) : json::object();
    if (metadata.value(json::json_pointer("/labels/fusionllm.io~1job-uid"), "") != id_.uid) {
      // Of a job of the same name that is no more, and goes with its objects; or somebody's who is none of ours to overwrite.
      return absl::AlreadyExistsError(
          absl::StrCat("ConfigMap ", name, " in namespace ", id_.ns, " of cluster ", member_.name(), " belongs to somebody else"));
    }
    if (metadata.contains("deletionTimestamp")) {
      return absl::UnavailableError(absl::StrCat("ConfigMap ", name, " in cluster ", member_.name(), " is still being deleted"));
    }
    int64_t epoch = 0;
    const std::string carried = metadata.value("annotations", json::object()).value(kEpochAnnotation, "");
    if (request_.fence != nullptr && absl::SimpleAtoi(carried, &epoch) && epoch > request_.fence->epoch()) {
      return absl::UnavailableError(absl::StrCat("ConfigMap ", name, " in cluster ", member_.name(), " was claimed meanwhile"));
    }
    anchor_ = {metadata.value("uid", ""), metadata.value("resourceVersion", "")};
    return absl::OkStatus();
  }

  json Anchor() const {
    json anchor = AnchorObject(id_, member_.name());
    if (request_.fence != nullptr) anchor["metadata"]["annotations"][kEpochAnnotation] = absl::StrCat(request_.fence->epoch());
    return anchor;
  }

  absl::Status Mark(const std::map<std::string, std::string>& annotations) {
    json anchor = Anchor();
    // As it was when this began: who has claimed it since must not be overwritten.
    anchor["metadata"]["resourceVersion"] = anchor_.resource_version;
    for (const auto& [key, value] : annotations) anchor["metadata"]["annotations"][key] = value;
    const kube::ObjectKey key{id_.ns, AnchorName(id_)};
    const absl::StatusOr<std::string> answer = client_.Apply(kConfigMaps, key, anchor.dump(), {.field_manager = kFieldManager}, call_);
    if (answer.ok()) member_.Wrote(id_.uid, kConfigMaps, *answer);
    if (!kube::IsApiConflict(answer.status())) return answer.status();
    return absl::UnavailableError(absl::StrCat("ConfigMap ", key.name, " in cluster ", member_.name(), " was changed meanwhile"));
  }

  static std::string HostPort(const std::string& host, int64_t port) {
    return absl::StrCat(absl::StrContains(host, ":") ? absl::StrCat("[", host, "]") : host, ":", port);
  }

  // How executors of other clusters reach the broker's Service.
  absl::StatusOr<std::string> RemoteAddress(const json& service) {
    const job::Network& network = request_.job->spec.network;
    if (network.mode == job::NetworkMode::kLoadBalancer) {
      const json& status = service.contains("status") ? service["status"] : json::object();
      const std::string ip = status.value(json::json_pointer("/loadBalancer/ingress/0/ip"), "");
      const std::string name = status.value(json::json_pointer("/loadBalancer/ingress/0/hostname"), "");
      if (ip.empty() && name.empty()) {
        return absl::UnavailableError(absl::StrCat("the load balancer of Service ", BrokerServiceName(id_), " has no address yet"));
      }
      return HostPort(network.address.value_or(ip.empty() ? name : ip), network.port);
    }
    const auto port = service.value(json::json_pointer("/spec/ports/0/nodePort"), int64_t{0});
    if (port == 0) return absl::InternalError(absl::StrCat("Service ", BrokerServiceName(id_), " has no node port"));
    std::string host = network.address.value_or(request_.hub_address);
    if (host.empty()) {
      FUSIONLLM_ASSIGN_OR_RETURN(host, NodeAddress());
    }
    return HostPort(host, port);
  }

  // Of any node: each of them forwards node ports.
  absl::StatusOr<std::string> NodeAddress() {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string answer, client_.List(kNodes, "", {.limit = 1}, call_));
    const json nodes = json::parse(answer, nullptr, /*allow_exceptions=*/false);
    const json addresses = nodes.is_object() ? nodes.value(json::json_pointer("/items/0/status/addresses"), json::array()) : json::array();
    for (const char* type : {"ExternalIP", "InternalIP"}) {
      for (const json& address : addresses) {
        if (address.is_object() && address.value("type", "") == type) return address.value("address", "");
      }
    }
    return absl::UnavailableError("the hub has no node with an address; set spec.network.address");
  }

  absl::StatusOr<Files> ReadSecret(const std::string& name) { return ReadSecret(client_, name); }

  absl::StatusOr<Files> ReadSecret(kube::ApiClient& client, const std::string& name) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string answer, client.Get(kSecrets, {id_.ns, name}, call_));
    const json secret = json::parse(answer, nullptr, /*allow_exceptions=*/false);
    if (!secret.is_object()) return absl::InternalError(absl::StrCat("no object in the answer for secret ", name));
    if (secret.value(json::json_pointer("/metadata/labels/fusionllm.io~1job-uid"), "") != id_.uid) {
      return absl::AlreadyExistsError(absl::StrCat("secret ", name, " in namespace ", id_.ns, " belongs to somebody else"));
    }
    Files files;
    const json data = secret.value("data", json::object());
    for (const auto& [file, text] : data.items()) {
      std::string plain;
      if (text.is_string() && absl::Base64Unescape(text.get<std::string>(), &plain)) files[file] = std::move(plain);
    }
    return files;
  }

  // Made once: a second authority would shut out the pods that have certificates of the first.
  absl::StatusOr<JobCredentials> Authority(const Owner& owner) {
    const std::string name = AuthoritySecretName(id_);
    absl::StatusOr<Files> files = ReadSecret(name);
    if (files.ok()) return JobCredentials::FromFiles(*files);
    if (!kube::IsApiNotFound(files.status())) return files.status();
    FUSIONLLM_ASSIGN_OR_RETURN(JobCredentials made, JobCredentials::Create(id_.name, request_.now));
    const json secret = SecretObject(id_, name, made.AuthorityFiles(), owner);
    const absl::Status created = client_.Create(kSecrets, id_.ns, secret.dump(), {.field_manager = kFieldManager}, call_).status();
    if (created.ok()) return made;
    if (!kube::IsApiAlreadyExists(created)) return created;
    FUSIONLLM_ASSIGN_OR_RETURN(files, ReadSecret(name));
    return JobCredentials::FromFiles(*files);
  }

  // Certificates that are there already stay: pods may be starting with them.
  absl::Status Secret(const std::string& name, const std::vector<std::string>& wanted, const Owner& owner,
                      const std::function<absl::StatusOr<Files>()>& make) {
    const absl::StatusOr<Files> have = ReadSecret(name);
    if (!have.ok() && !kube::IsApiNotFound(have.status())) return have.status();
    if (have.ok() && std::all_of(wanted.begin(), wanted.end(), [&](const std::string& file) { return have->contains(file); })) {
      return absl::OkStatus();
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const Files files, make());
    return Apply(kSecrets, SecretObject(id_, name, files, owner)).status();
  }

  absl::Status ExecutorSecret(const JobCredentials& credentials, const std::string& cluster, const Owner& owner) {
    std::vector<std::string> devices, files;
    for (const ExecutorSlot& slot : request_.slots) {
      if (slot.cluster != cluster) continue;
      devices.push_back(DeviceName(slot));
      files.push_back(absl::StrCat(devices.back(), ".key"));
    }
    if (devices.empty()) return absl::OkStatus();
    return Secret(ExecutorSecretName(id_), files, owner, [&] { return credentials.ExecutorFiles(devices, request_.now); });
  }

  Member& member_;
  kube::ApiClient& client_;
  const PrepareRequest& request_;
  const JobIdentity& id_;
  const kube::CallOptions call_;
  struct {
    std::string uid, resource_version;
  } anchor_;
};

}  // namespace

absl::StatusOr<Prepared> PrepareRemote(Member& member, Member& hub, const PrepareRequest& request, std::stop_token stop) {
  return Preparation(member, request, std::move(stop)).Remote(hub);
}

absl::StatusOr<Prepared> PrepareHub(Member& hub, const PrepareRequest& request, std::stop_token stop) {
  return Preparation(hub, request, std::move(stop)).Hub();
}

}  // namespace fusionllm::op
