#include "lib/kube/testing/fake_api.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/time.h"
#include "lib/kube/testing/fake_objects.h"
#include "lib/kube/testing/fake_token.h"

namespace fusionllm::kube::testing {
namespace {

bool MakesToken(const FakeRequest& request) {
  return request.verb == "create" && request.subresource == "token" && request.group.empty() && request.plural == "serviceaccounts";
}

FieldManager Manager(const FakeRequest& request) {
  std::string name = request.Query("fieldManager");
  if (name.empty()) name = request.user_agent.substr(0, request.user_agent.find('/'));
  return {name.empty() ? "unknown" : name, request.verb == "apply", request.subresource};
}

}  // namespace

FakeApi::FakeApi(Clock& clock) : clock_(clock) {
  static std::atomic<uint32_t> instances = 0;
  instance_ = ++instances;
  const KindOptions with_status = {.status_subresource = true, .builtin = true};
  const KindOptions without = {.status_subresource = false, .builtin = true};
  Serve({"", "v1", "namespaces", "Namespace", false}, with_status);
  Serve({"", "v1", "nodes", "Node", false}, with_status);
  Serve({"", "v1", "pods", "Pod", true}, with_status);
  Serve({"", "v1", "services", "Service", true}, with_status);
  for (const auto& [plural, kind] : std::map<std::string, std::string>{{"configmaps", "ConfigMap"},
                                                                       {"secrets", "Secret"},
                                                                       {"serviceaccounts", "ServiceAccount"},
                                                                       {"events", "Event"},
                                                                       {"endpoints", "Endpoints"}}) {
    Serve({"", "v1", plural, kind, true}, without);
  }
  Serve({"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true}, with_status);
  Serve({"coordination.k8s.io", "v1", "leases", "Lease", true}, without);
  Serve({"events.k8s.io", "v1", "events", "Event", true}, without);
  Serve({"apps", "v1", "deployments", "Deployment", true}, with_status);
  Serve({"batch", "v1", "jobs", "Job", true}, with_status);
  Serve({"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true}, without);
  Serve({"rbac.authorization.k8s.io", "v1", "roles", "Role", true}, without);
  Serve({"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true}, without);
  for (const char* name : {"default", "kube-system"}) {
    const Json object = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", name}}}};
    (void)Do({.verb = "create", .version = "v1", .plural = "namespaces"}, object.dump());
  }
}

void FakeApi::Serve(const Resource& resource, const KindOptions& options) { kinds_[resource.Name()] = {resource, options}; }

absl::StatusOr<const FakeKind*> FakeApi::FindKind(const FakeRequest& request) const {
  const auto found = kinds_.find(Resource{.group = request.group, .plural = request.plural}.Name());
  if (found == kinds_.end() || found->second.resource.version != request.version ||
      (!found->second.resource.namespaced && !request.key.ns.empty())) {
    return Refuse(404, "NotFound", "the server could not find the requested resource");
  }
  const FakeKind& kind = found->second;
  if (MakesToken(request)) return &kind;
  if (!request.subresource.empty() && !(request.subresource == "status" && kind.options.status_subresource)) {
    return Refuse(404, "NotFound", "the server could not find the requested resource");
  }
  return &kind;
}

const FakeKind* FakeApi::KindOf(const std::string& collection) const { return &kinds_.at(collection); }

Json FakeApi::Shown(const FakeRequest& request, const Json& object) {
  if (!request.metadata_only) return object;
  return {{"kind", "PartialObjectMetadata"}, {"apiVersion", "meta.k8s.io/v1"}, {"metadata", object.value("metadata", Json::object())}};
}

absl::StatusOr<FakeAnswer> FakeApi::Do(const FakeRequest& request, const std::string& body) {
  if (request.verb == "path") return Path(request);
  FUSIONLLM_ASSIGN_OR_RETURN(const FakeKind* const kind, FindKind(request));
  if (request.verb == "get") return Get(*kind, request);
  if (request.verb == "list") return List(*kind, request);
  Write write = {*kind, request, request.key, request.Query("dryRun") == "All", Manager(request)};
  const Json object = body.empty() ? Json::object() : Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return Refuse(400, "BadRequest", "the object provided is unrecognized: couldn't parse it as JSON");
  if (request.verb == "delete") {
    write.dry_run |= object.contains("dryRun");
    return Delete(write, object);
  }
  if (request.verb == "patch") return Patch(write, object);
  if (MakesToken(request)) return CreateToken(*kind, request, object);
  FUSIONLLM_RETURN_IF_ERROR(CheckIdentity(kind->resource, request.key, object));
  if (request.verb == "create") return Create(write, object);
  if (request.verb == "update") return Update(write, object);
  return Apply(write, object);
}

absl::StatusOr<FakeAnswer> FakeApi::Path(const FakeRequest& request) const {
  if (request.path == "/version") return FakeAnswer{200, {{"major", "1"}, {"minor", "34"}, {"gitVersion", "v1.34.0-fake"}}};
  if (request.path == "/healthz" || request.path == "/livez" || request.path == "/readyz") return FakeAnswer{200, "ok"};
  Json resources = Json::array();
  std::string group_version;
  for (const auto& [collection, kind] : kinds_) {
    const Resource& resource = kind.resource;
    const std::string path = absl::StrCat(resource.group.empty() ? "/api/" : "/apis/", resource.ApiVersion());
    if (path != request.path) continue;
    group_version = resource.ApiVersion();
    resources.push_back({{"name", resource.plural}, {"kind", resource.kind}, {"namespaced", resource.namespaced}});
  }
  if (resources.empty()) return Refuse(404, "NotFound", "the server could not find the requested resource");
  return FakeAnswer{200, {{"kind", "APIResourceList"}, {"apiVersion", "v1"}, {"groupVersion", group_version}, {"resources", resources}}};
}

absl::StatusOr<FakeAnswer> FakeApi::Get(const FakeKind& kind, const FakeRequest& request) const {
  const SharedJson object = store_.Find(kind.collection(), request.key);
  if (object == nullptr) return NotFound(kind.resource, request.key.name);
  return FakeAnswer{200, Shown(request, *object)};
}

absl::StatusOr<FakeAnswer> FakeApi::CreateToken(const FakeKind& accounts, const FakeRequest& request, const Json& asked) const {
  const SharedJson account = store_.Find(accounts.collection(), request.key);
  if (account == nullptr) return NotFound(accounts.resource, request.key.name);
  const Json spec = asked.value("spec", Json::object()), bound = spec.value("boundObjectRef", Json::object());
  FakeTokenClaims claims{.account = request.key, .issued_at = clock_.Now()};
  const int64_t seconds = spec.value("expirationSeconds", int64_t{3600});
  if (seconds < 600)
    return Refuse(422, "Invalid", "spec.expirationSeconds: Invalid value: may not specify a duration less than 10 minutes");
  claims.expires_at = claims.issued_at + absl::Seconds(seconds);
  if (!bound.empty()) {
    claims.secret = bound.value("name", "");
    const SharedJson secret = store_.Find("secrets", {request.key.ns, claims.secret});
    if (bound.value("kind", "") != "Secret" || secret == nullptr) return NotFound({.plural = "secrets"}, claims.secret);
    claims.secret_uid = UidOf(*secret);
    if (bound.value("uid", claims.secret_uid) != claims.secret_uid) {
      return Refuse(409, "Conflict", "the UID in the bound object reference does not match the UID in record");
    }
  }
  Json answer = asked;
  answer["status"] = {{"token", FakeToken(claims)}, {"expirationTimestamp", TimeText(*claims.expires_at)}};
  return FakeAnswer{201, std::move(answer)};
}

absl::StatusOr<SharedJson> FakeApi::Existing(const Write& write) const {
  SharedJson object = store_.Find(write.kind.collection(), write.key);
  if (object == nullptr) return NotFound(write.kind.resource, write.key.name);
  return object;
}

absl::Status FakeApi::CheckNamespace(const Write& write) const {
  if (!write.kind.resource.namespaced) return absl::OkStatus();
  const SharedJson ns = store_.Find("namespaces", {"", write.key.ns});
  if (ns == nullptr) return Refuse(404, "NotFound", absl::StrCat("namespaces \"", write.key.ns, "\" not found"));
  if (!IsBeingDeleted(*ns)) return absl::OkStatus();
  return Refuse(
      403, "Forbidden",
      absl::StrCat(write.kind.resource.Name(), " \"", write.key.name, "\" is forbidden: unable to create new content in namespace ",
                   write.key.ns, " because it is being terminated"),
      {{"NamespaceTerminating", "metadata.namespace", absl::StrCat("namespace ", write.key.ns, " is being terminated")}});
}

absl::StatusOr<FakeAnswer> FakeApi::Create(const Write& asked, Json object) {
  Write write = asked;
  Json& metadata = object["metadata"];
  if (metadata.contains("resourceVersion") && metadata["resourceVersion"] != "") {
    return Refuse(400, "BadRequest", "resourceVersion should not be set on objects to be created");
  }
  std::string name = metadata.value("name", "");
  if (name.empty() && !metadata.value("generateName", "").empty()) {
    name = absl::StrFormat("%s%05x", metadata["generateName"].get<std::string>(), ++uids_);
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckName(write.kind.resource, name));
  write.key.name = name;
  FUSIONLLM_RETURN_IF_ERROR(CheckNamespace(write));
  if (store_.Find(write.kind.collection(), write.key) != nullptr) {
    return Refuse(409, "AlreadyExists", absl::StrCat(write.kind.resource.Name(), " \"", name, "\" already exists"));
  }
  FieldOwners owners;
  if (write.kind.options.status_subresource) object.erase("status");
  TakeOwnership(Json::object(), object, write.manager, DefaultListKeys(), owners);
  return Insert(write, std::move(object), std::move(owners));
}

FakeAnswer FakeApi::Insert(const Write& write, Json object, FieldOwners owners) {
  Json& metadata = object["metadata"];
  metadata["name"] = write.key.name;
  if (!write.key.ns.empty()) metadata["namespace"] = write.key.ns;
  metadata["uid"] = NewUid();
  metadata["creationTimestamp"] = Timestamp();
  metadata["generation"] = 1;
  metadata.erase("deletionTimestamp");
  object["apiVersion"] = write.kind.resource.ApiVersion();
  object["kind"] = write.kind.resource.kind;
  if (write.kind.resource.kind == "Pod" && write.kind.resource.group.empty()) object["status"] = {{"phase", "Pending"}};
  if (write.kind.resource.kind == "Namespace") object["status"] = {{"phase", "Active"}};
  if (write.kind.resource.Name() == "services") FillService(Json::object(), object);
  metadata["managedFields"] = ManagedFields(owners, write.kind.resource.ApiVersion(), Timestamp());
  if (write.dry_run) return {201, std::move(object)};
  const std::string uid = metadata["uid"];
  const std::set<std::string> owner_uids = OwnerUids(object);
  const SharedJson stored = store_.Put(write.kind.collection(), write.key, std::move(object));
  owners_[uid] = std::move(owners);
  NoteOwners(write.kind.collection(), write.key, *stored);
  const bool owned = std::any_of(owner_uids.begin(), owner_uids.end(), [this](const std::string& owner) { return Exists(owner); });
  // An owner that is not there, say of another cluster, counts as gone: the garbage collector takes the object away.
  if (!owner_uids.empty() && !owned) BeginDelete(write.kind, write.key, 0);
  return {201, *stored};
}

absl::StatusOr<FakeAnswer> FakeApi::Update(const Write& write, Json object) {
  FUSIONLLM_ASSIGN_OR_RETURN(const SharedJson old, Existing(write));
  const std::string version = object["metadata"].value("resourceVersion", "");
  if (version.empty() && !write.kind.options.builtin) {
    return Refuse(422, "Invalid",
                  absl::StrCat(write.kind.resource.Name(), " \"", write.key.name,
                               "\" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"),
                  {{"FieldValueInvalid", "metadata.resourceVersion", "must be specified for an update"}});
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckUnchanged(write.kind.resource, *old, object));
  return Commit(write, *old, std::move(object), owners_[UidOf(*old)]);
}

absl::StatusOr<FakeAnswer> FakeApi::Patch(const Write& write, const Json& patch) {
  FUSIONLLM_ASSIGN_OR_RETURN(const SharedJson old, Existing(write));
  Json next = *old;
  if (write.request.media_type == "application/merge-patch+json") {
    next.merge_patch(patch);
  } else if (write.request.media_type == "application/json-patch+json") {
    const bool is_patch = patch.is_array() && std::all_of(patch.begin(), patch.end(), [](const Json& one) { return one.is_object(); });
    if (!is_patch) return Refuse(400, "BadRequest", "the body is no list of the operations of a JSON patch");
    try {
      next = next.patch(patch);
    } catch (const Json::exception& e) {
      return Refuse(422, "Invalid", absl::StrCat("the server rejected our request due to an error in our request: ", e.what()));
    }
  } else {
    return Refuse(415, "UnsupportedMediaType",
                  "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, "
                  "application/merge-patch+json, application/apply-patch+yaml");
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckIdentity(write.kind.resource, write.key, next));
  FUSIONLLM_RETURN_IF_ERROR(CheckUnchanged(write.kind.resource, *old, next));
  return Commit(write, *old, std::move(next), owners_[UidOf(*old)]);
}

absl::StatusOr<FakeAnswer> FakeApi::Apply(const Write& write, Json applied) {
  if (write.request.Query("fieldManager").empty()) {
    return Refuse(400, "BadRequest", "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch");
  }
  if (applied["metadata"].contains("managedFields")) return Refuse(400, "BadRequest", "metadata.managedFields must be nil");
  if (write.request.subresource == "status") {
    const Json status = applied.value("status", Json::object());
    applied = {{"status", status}, {"metadata", applied["metadata"]}};
  } else if (write.kind.options.status_subresource) {
    applied.erase("status");
  }
  const SharedJson old = store_.Find(write.kind.collection(), write.key);
  if (old != nullptr) FUSIONLLM_RETURN_IF_ERROR(CheckUnchanged(write.kind.resource, *old, applied));
  applied["metadata"].erase("resourceVersion");
  if (old == nullptr) {
    if (!write.request.subresource.empty()) return NotFound(write.kind.resource, write.key.name);
    FUSIONLLM_RETURN_IF_ERROR(CheckNamespace(write));
    FUSIONLLM_RETURN_IF_ERROR(CheckName(write.kind.resource, write.key.name));
    FieldOwners owners;
    const auto made = ApplyFields(Json::object(), applied, write.manager, true, DefaultListKeys(), owners);
    return Insert(write, *made, std::move(owners));
  }
  FieldOwners owners = owners_[UidOf(*old)];
  const absl::StatusOr<Json> next =
      ApplyFields(*old, applied, write.manager, write.request.Query("force") == "true", DefaultListKeys(), owners);
  if (!next.ok()) return Refuse(409, "Conflict", std::string(next.status().message()), {{"FieldManagerConflict", "", "conflict"}});
  return Commit(write, *old, *next, std::move(owners));
}

FakeAnswer FakeApi::Commit(const Write& write, const Json& old, Json next, FieldOwners owners) {
  const bool status = write.request.subresource == "status";
  if (status) {
    Json kept = old;
    if (next.contains("status")) {
      kept["status"] = next["status"];
    } else {
      kept.erase("status");
    }
    next = std::move(kept);
  } else if (write.kind.options.status_subresource) {
    next.erase("status");
    if (old.contains("status")) next["status"] = old["status"];
  }
  KeepServersOwn(old, next);
  if (write.kind.resource.Name() == "services") FillService(old, next);
  if (!SameOutside(old, next, {"metadata", "status"})) next["metadata"]["generation"] = old["metadata"].value("generation", 0) + 1;
  if (write.request.verb != "apply") TakeOwnership(old, next, write.manager, DefaultListKeys(), owners);
  const std::string uid = UidOf(old);
  // A write that changes nothing is none: no new version, no event. Whose fields they are may change all the same.
  if (SameButOwners(old, next) && owners == owners_[uid]) return {200, old};
  next["metadata"]["managedFields"] = ManagedFields(owners, write.kind.resource.ApiVersion(), Timestamp());
  if (write.dry_run) return {200, std::move(next)};
  owners_[uid] = std::move(owners);
  const bool waits_for_kubelet = next["metadata"].value("deletionGracePeriodSeconds", 0) > 0;
  const SharedJson stored = store_.Put(write.kind.collection(), write.key, std::move(next));
  NoteOwners(write.kind.collection(), write.key, *stored);
  if (IsBeingDeleted(*stored) && !HasFinalizers(*stored) && !waits_for_kubelet && write.kind.resource.kind != "Namespace") {
    Remove(write.kind.collection(), write.key);
  }
  return {200, *stored};
}

absl::StatusOr<FakeAnswer> FakeApi::Delete(const Write& write, const Json& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(const SharedJson old, Existing(write));
  const Json preconditions = options.value("preconditions", Json::object());
  for (const auto& [field, word] : {std::pair("uid", "UID"), std::pair("resourceVersion", "ResourceVersion")}) {
    const std::string has = (*old)["metadata"][field];
    if (!preconditions.contains(field) || preconditions[field] == has) continue;
    return Refuse(409, "Conflict",
                  absl::StrCat("Operation cannot be fulfilled on ", write.kind.resource.Name(), " \"", write.key.name,
                               "\": Precondition failed: ", word, " in precondition: ", preconditions[field].get<std::string>(), ", ", word,
                               " in object meta: ", has));
  }
  const Json success = {{"kind", "Status"},
                        {"apiVersion", "v1"},
                        {"status", "Success"},
                        {"details", {{"name", write.key.name}, {"kind", write.kind.resource.plural}, {"uid", UidOf(*old)}}}};
  if (write.dry_run) return FakeAnswer{200, success};
  std::optional<int> grace;
  if (options.contains("gracePeriodSeconds")) grace = options["gracePeriodSeconds"].get<int>();
  if (options.value("propagationPolicy", "") == "Orphan") OrphanDependents(UidOf(*old));
  BeginDelete(write.kind, write.key, grace);
  const SharedJson left = store_.Find(write.kind.collection(), write.key);
  return FakeAnswer{200, left == nullptr ? success : *left};
}

void FakeApi::BeginDelete(const FakeKind& kind, const ObjectKey& key, std::optional<int> grace_s) {
  Json next = *store_.Find(kind.collection(), key);
  Json& metadata = next["metadata"];
  // A Pod on a node goes when its kubelet says so, by deleting it without grace.
  const bool on_node = kind.resource.Name() == "pods" && next.contains("spec") && !next["spec"].value("nodeName", "").empty();
  const int grace = on_node ? grace_s.value_or(30) : 0;
  const bool is_namespace = kind.resource.Name() == "namespaces";
  if (grace == 0 && !HasFinalizers(next) && !is_namespace) return Remove(kind.collection(), key);
  const Json before = next;
  if (!metadata.contains("deletionTimestamp")) metadata["deletionTimestamp"] = TimeText(clock_.Now() + absl::Seconds(grace));
  if (on_node) metadata["deletionGracePeriodSeconds"] = grace;
  if (is_namespace) next["status"]["phase"] = "Terminating";
  if (next != before) store_.Put(kind.collection(), key, std::move(next));
  if (!is_namespace) return;
  for (const auto& [collection, inside] : kinds_) {
    const ObjectMap all = store_.All(collection);
    for (const auto& [inner, object] : all) {
      if (inner.ns == key.name && store_.Find(collection, inner) != nullptr) BeginDelete(inside, inner, 0);
    }
  }
  FinishNamespaces();
}

void FakeApi::Remove(const std::string& collection, const ObjectKey& key) {
  const std::string uid = UidOf(*store_.Find(collection, key));
  store_.Remove(collection, key);
  items_[collection].erase(key);
  owners_.erase(uid);
  CollectDependents(uid);
  FinishNamespaces();
}

void FakeApi::NoteOwners(const std::string& collection, const ObjectKey& key, const Json& object) {
  for (const std::string& owner : OwnerUids(object)) dependents_[owner].emplace(collection, key);
}

std::set<std::pair<std::string, ObjectKey>> FakeApi::DependentsOf(const std::string& uid) const {
  const auto found = dependents_.find(uid);
  return found == dependents_.end() ? std::set<std::pair<std::string, ObjectKey>>() : found->second;
}

void FakeApi::CollectDependents(const std::string& uid) {
  for (const auto& [collection, key] : DependentsOf(uid)) {
    const SharedJson object = store_.Find(collection, key);
    if (object == nullptr || IsBeingDeleted(*object)) continue;
    const std::set<std::string> owners = OwnerUids(*object);
    const bool others = std::any_of(owners.begin(), owners.end(), [this](const std::string& owner) { return Exists(owner); });
    if (owners.contains(uid) && !others) BeginDelete(*KindOf(collection), key, std::nullopt);
  }
  dependents_.erase(uid);
}

void FakeApi::OrphanDependents(const std::string& uid) {
  for (const auto& [collection, key] : DependentsOf(uid)) {
    const SharedJson object = store_.Find(collection, key);
    if (object == nullptr || !OwnerUids(*object).contains(uid)) continue;
    Json next = *object;
    Json& references = next["metadata"]["ownerReferences"];
    for (size_t i = references.size(); i-- > 0;) {
      if (references[i].value("uid", "") == uid) references.erase(i);
    }
    store_.Put(collection, key, std::move(next));
  }
}

void FakeApi::FinishNamespaces() {
  const ObjectMap namespaces = store_.All("namespaces");
  for (const auto& listed : namespaces) {
    const auto& ns = listed.first;
    if (!IsBeingDeleted(*listed.second) || store_.Find("namespaces", ns) == nullptr) continue;
    const bool empty = std::none_of(store_.collections().begin(), store_.collections().end(), [&](const auto& collection) {
      return std::any_of(collection.second.begin(), collection.second.end(), [&](const auto& entry) { return entry.first.ns == ns.name; });
    });
    if (empty) store_.Remove("namespaces", ns);
  }
}

bool FakeApi::Exists(const std::string& uid) const { return owners_.contains(uid); }

void FakeApi::FillService(const Json& old, Json& service) {
  Json& spec = service["spec"];
  if (!spec.is_object()) spec = Json::object();
  const std::string type = spec.value("type", "ClusterIP");
  if (type == "ExternalName") return;
  const auto next = [this] { return ++addresses_; };
  if (!spec.contains("clusterIP")) {
    const int64_t n = next();
    spec["clusterIP"] = absl::StrCat("10.96.", n / 250 % 256, ".", n % 250 + 1);
  }
  if (type == "ClusterIP" || !spec.contains("ports")) return;
  const Json ports = old.value(Json::json_pointer("/spec/ports"), Json::array());
  for (Json& port : spec["ports"]) {
    for (const Json& before : ports) {
      if (before.contains("nodePort") && before.value("port", 0) == port.value("port", 0)) port.emplace("nodePort", before["nodePort"]);
    }
    port.emplace("nodePort", 30'000 + next() % 2768);
  }
}

std::string FakeApi::NewUid() { return absl::StrFormat("%08x-0000-4000-8000-%012x", instance_, ++uids_); }

std::string FakeApi::Timestamp() const { return TimeText(clock_.Now()); }

}  // namespace fusionllm::kube::testing
