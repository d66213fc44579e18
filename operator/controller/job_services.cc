#include "operator/controller/job_services.h"

#include "absl/strings/str_cat.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/controller/job_objects.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

using kube::At;
using kube::ListOf;
using kube::TextAt;
using nlohmann::json;

constexpr int kNodesAsked = 20;  // one that is ready is among them, or the cluster is in trouble

const json& First(const json& list) {
  static const json kNothing;
  return list.is_array() && !list.empty() ? list.front() : kNothing;
}

bool IsLoadBalancer(const json& service) { return TextAt(service, "spec", "type") == "LoadBalancer"; }

int64_t PortOf(const json& service, const char* which) { return kube::IntegerOf(At(First(At(service, "spec", "ports")), which), 0); }

// Whether applying `wanted` would change nothing that matters.
bool IsAs(const json& wanted, const json& there) {
  return TextAt(there, "spec", "type") == TextAt(wanted, "spec", "type") &&
         At(there, "spec", "selector") == At(wanted, "spec", "selector") && PortOf(there, "port") == PortOf(wanted, "port") &&
         OwnerUidOf(there) == OwnerUidOf(wanted);
}

// The same with the address and node port that a Service of that name had.
json Placed(json wanted, const ServiceEndpoints& before) {
  if (const auto internal = base::SplitHostPort(before.internal); internal.ok()) wanted["spec"]["clusterIP"] = internal->host;
  if (TextAt(wanted, "spec", "type") != "NodePort") return wanted;
  if (const auto external = base::SplitHostPort(before.external); external.ok()) wanted["spec"]["ports"][0]["nodePort"] = external->port;
  return wanted;
}

bool IsReady(const json& node) {
  for (const json& condition : ListOf(At(node, "status", "conditions"))) {
    if (TextAt(condition, "type") == "Ready") return TextAt(condition, "status") == "True";
  }
  return false;
}

// Of any node: each of them forwards node ports. Rather one that works, and where it is reached from afar. Empty: there is none.
std::string AddressAmong(const json& nodes) {
  for (const bool any : {false, true}) {
    for (const char* type : {"ExternalIP", "InternalIP"}) {
      for (const json& node : nodes) {
        if (!any && !IsReady(node)) continue;
        for (const json& address : ListOf(At(node, "status", "addresses"))) {
          if (TextAt(address, "type") == type && !TextAt(address, "address").empty()) return TextAt(address, "address");
        }
      }
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<ServiceEndpoints> JobServices::Make(const json& wanted, bool external, const ServiceEndpoints& before,
                                                   const std::optional<std::string>& host) {
  ServiceEndpoints endpoints;
  FUSIONLLM_ASSIGN_OR_RETURN(const json service, Ensure(wanted, before, endpoints.missing));
  if (!endpoints.missing.empty()) return endpoints;
  const std::string cluster_ip = TextAt(service, "spec", "clusterIP");
  if (cluster_ip.empty()) {
    endpoints.missing = absl::StrCat(Called(wanted), " has no address yet");
    return endpoints;
  }
  endpoints.internal = base::JoinHostPort(cluster_ip, absl::StrCat(PortOf(service, "port")));
  if (!external) return endpoints;
  const int64_t port = PortOf(service, IsLoadBalancer(service) ? "port" : "nodePort");
  std::string reached = host.value_or("");
  if (!host.has_value() || IsLoadBalancer(service)) {
    // A load balancer takes nothing before it has an address, whatever it is called elsewhere.
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string own, HostOf(service, endpoints.missing));
    if (!endpoints.missing.empty()) return endpoints;
    if (!host.has_value()) reached = own;
  }
  const std::string address = base::JoinHostPort(reached, absl::StrCat(port));
  if (const absl::Status dialable = base::CheckDialable(address); !dialable.ok()) {
    endpoints.missing = absl::StrCat("no executor can dial ", Called(wanted), ": ", std::string(dialable.message()));
  } else if (base::IsLoopback(reached)) {
    endpoints.missing = absl::StrCat("executors elsewhere cannot dial ", Called(wanted), ": ", reached,
                                     " leads each machine to itself; set spec.network.address to one that other clusters reach");
  } else {
    endpoints.external = address;
  }
  return endpoints;
}

absl::Status JobServices::Remove(const std::string& name) {
  const kube::ObjectKey key{job_.ns, name};
  const absl::StatusOr<std::string> answer = client_.Get(manifests::kServices, key, call_);
  if (kube::IsApiNotFound(answer.status())) return absl::OkStatus();
  FUSIONLLM_RETURN_IF_ERROR(answer.status());
  const json there = kube::ParseJson(*answer);
  if (TextAt(there, "metadata", "labels", manifests::kJobUidLabel) != job_.uid) return absl::OkStatus();
  const absl::Status removed = client_.Delete(manifests::kServices, key, {.uid = TextAt(there, "metadata", "uid")}, call_).status();
  if (kube::IsApiForbidden(removed)) {
    base::Log(
        base::LogLevel::kWarning,
        absl::StrCat(Called(there), " stays until its job is deleted: the operator may not delete it: ", std::string(removed.message())));
    return absl::OkStatus();
  }
  // A conflict: it has changed hands since.
  return kube::IsApiNotFound(removed) || kube::IsApiConflict(removed) ? absl::OkStatus() : removed;
}

// The Service as the server has it; nothing when `missing` is said.
absl::StatusOr<json> JobServices::Ensure(const json& wanted, const ServiceEndpoints& before, std::string& missing) {
  const kube::ObjectKey key{job_.ns, TextAt(wanted, "metadata", "name")};
  absl::StatusOr<std::string> answer = client_.Get(manifests::kServices, key, call_);
  if (answer.ok()) {
    json there = kube::ParseJson(*answer);
    if (TextAt(there, "metadata", "labels", manifests::kJobUidLabel) != job_.uid) {
      return absl::AlreadyExistsError(absl::StrCat(Called(wanted), " exists already and is not owned by this job"));
    }
    if (!At(there, "metadata", "deletionTimestamp").is_null()) {
      missing = absl::StrCat(Called(wanted), " is still being deleted");
      return json();
    }
    if (IsAs(wanted, there)) return there;
  }
  if (answer.ok() || kube::IsApiNotFound(answer.status())) {
    const json placed = answer.ok() ? wanted : Placed(wanted, before);
    answer = client_.Apply(manifests::kServices, key, placed.dump(), {.field_manager = manifests::kFieldManager}, call_);
    if (kube::IsApiInvalid(answer.status()) && placed != wanted) {
      answer = client_.Apply(manifests::kServices, key, wanted.dump(), {.field_manager = manifests::kFieldManager}, call_);
    }
  }
  if (kube::IsApiForbidden(answer.status())) {
    missing = absl::StrCat("the operator may not make ", Called(wanted), ": ", std::string(answer.status().message()));
    return json();
  }
  FUSIONLLM_RETURN_IF_ERROR(answer.status());
  json made = kube::ParseJson(*answer);
  if (!made.is_object()) return absl::InternalError(absl::StrCat("no object in the answer for ", Called(wanted)));
  return made;
}

absl::StatusOr<std::string> JobServices::HostOf(const json& service, std::string& missing) {
  if (IsLoadBalancer(service)) {
    const json& ingress = First(At(service, "status", "loadBalancer", "ingress"));
    const std::string ip = TextAt(ingress, "ip");
    const std::string host = ip.empty() ? TextAt(ingress, "hostname") : ip;
    if (host.empty()) missing = absl::StrCat("the load balancer of ", Called(service), " has no address yet");
    return host;
  }
  if (PortOf(service, "nodePort") == 0) {
    missing = absl::StrCat(Called(service), " has no node port yet");
    return std::string();
  }
  if (!node_address_.empty()) return node_address_;
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string host, NodeAddress());
  if (host.empty()) {
    missing = absl::StrCat("no node of cluster ", cluster_, " has an address, for ", Called(service),
                           "; set spec.network.address of the FusionCluster");
  }
  return host;
}

absl::StatusOr<std::string> JobServices::NodeAddress() {
  if (!of_nodes_.has_value()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string answer, client_.List(manifests::kNodes, "", {.limit = kNodesAsked}, call_));
    const json nodes = kube::ParseJson(answer);
    of_nodes_ = AddressAmong(ListOf(At(nodes, "items")));
  }
  return *of_nodes_;
}

std::string JobServices::Called(const json& service) const {
  return absl::StrCat("Service ", TextAt(service, "metadata", "name"), " in cluster ", cluster_);
}

}  // namespace fusionllm::op::controller
