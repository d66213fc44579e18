#include "lib/kube/client/requests.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::kube {
namespace {

using Parameters = std::vector<std::pair<std::string, std::string>>;

std::string Target(std::string path, const Parameters& parameters) {
  const std::string query = QueryString(parameters);
  if (!query.empty()) absl::StrAppend(&path, "?", query);
  return path;
}

const char* Name(DeletionPropagation propagation) {
  switch (propagation) {
    case DeletionPropagation::kBackground:
      return "Background";
    case DeletionPropagation::kForeground:
      return "Foreground";
    case DeletionPropagation::kOrphan:
      return "Orphan";
  }
  return "Background";
}

bool IsSegment(absl::string_view text) { return !text.empty() && text != "." && text != ".." && !absl::StrContains(text, "/"); }

}  // namespace

absl::Status CheckKey(const Resource& resource, const ObjectKey& key) {
  if (!IsSegment(key.name))
    return absl::InvalidArgumentError(absl::StrCat("\"", key.name, "\" is no name of an object of ", resource.Name()));
  if (resource.namespaced && !IsSegment(key.ns)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", key.ns, "\" is no namespace for ", resource.Name(), " ", key.name));
  }
  if (!resource.namespaced && !key.ns.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(resource.Name(), " ", key.name, " belongs to no namespace, but \"", key.ns, "\" was given"));
  }
  return absl::OkStatus();
}

HttpHeader AcceptJson() { return {"Accept", "application/json"}; }

HttpHeader AcceptMetadata(absl::string_view kind) { return {"Accept", absl::StrCat("application/json;as=", kind, ";g=meta.k8s.io;v=v1")}; }

HttpRequest ListRequest(const Resource& resource, absl::string_view ns, const ListOptions& options) {
  const Parameters parameters = {
      {"labelSelector", options.label_selector},
      {"fieldSelector", options.field_selector},
      {"resourceVersion", options.resource_version},
      {"resourceVersionMatch", options.resource_version_match},
      {"limit", options.limit > 0 ? absl::StrCat(options.limit) : ""},
      {"continue", options.continue_token},
  };
  return {.method = "GET",
          .target = Target(CollectionPath(resource, ns), parameters),
          .headers = {options.metadata_only ? AcceptMetadata("PartialObjectMetadataList") : AcceptJson()}};
}

HttpRequest WatchRequest(const Resource& resource, absl::string_view ns, const WatchOptions& options) {
  const Parameters parameters = {
      {"watch", "true"},
      {"labelSelector", options.label_selector},
      {"fieldSelector", options.field_selector},
      {"resourceVersion", options.resource_version},
      {"allowWatchBookmarks", "true"},
      {"timeoutSeconds", absl::StrCat(absl::ToInt64Seconds(options.server_timeout))},
  };
  return {.method = "GET",
          .target = Target(CollectionPath(resource, ns), parameters),
          .headers = {options.metadata_only ? AcceptMetadata("PartialObjectMetadata") : AcceptJson()}};
}

HttpRequest WriteRequest(absl::string_view method, std::string path, absl::string_view media_type, absl::string_view body,
                         const WriteOptions& options) {
  const Parameters parameters = {{"fieldManager", options.field_manager}, {"dryRun", options.dry_run ? "All" : ""}};
  return {.method = std::string(method),
          .target = Target(std::move(path), parameters),
          .headers = {AcceptJson(), {"Content-Type", std::string(media_type)}},
          .body = std::string(body)};
}

HttpRequest ApplyRequest(const Resource& resource, const ObjectKey& key, absl::string_view body, const ApplyOptions& options) {
  const Parameters parameters = {
      {"fieldManager", options.field_manager}, {"force", options.force ? "true" : "false"}, {"dryRun", options.dry_run ? "All" : ""}};
  return {.method = "PATCH",
          .target = Target(ObjectPath(resource, key, options.subresource), parameters),
          .headers = {AcceptJson(), {"Content-Type", "application/apply-patch+yaml"}},  // JSON is YAML
          .body = std::string(body)};
}

HttpRequest DeleteRequest(const Resource& resource, const ObjectKey& key, const DeleteOptions& options) {
  nlohmann::json body = {{"kind", "DeleteOptions"}, {"apiVersion", "v1"}, {"propagationPolicy", Name(options.propagation)}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) body["preconditions"]["resourceVersion"] = options.resource_version;
  if (options.grace_period_seconds.has_value()) body["gracePeriodSeconds"] = *options.grace_period_seconds;
  if (options.dry_run) body["dryRun"] = {"All"};
  return {.method = "DELETE",
          .target = ObjectPath(resource, key),
          .headers = {AcceptJson(), {"Content-Type", "application/json"}},
          .body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

std::string Describe(const HttpRequest& request) {
  return absl::StrCat(request.method, " ", request.target.substr(0, request.target.find('?')));
}

std::optional<std::string> WarningText(const HttpHeader& header) {
  if (!absl::EqualsIgnoreCase(header.name, "Warning")) return std::nullopt;
  const size_t open = header.value.find('"');
  const size_t close = header.value.rfind('"');
  if (open == std::string::npos || close <= open) return header.value.substr(0, 512);
  return header.value.substr(open + 1, std::min<size_t>(close - open - 1, 512));
}

}  // namespace fusionllm::kube
