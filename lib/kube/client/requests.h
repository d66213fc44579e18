// The requests behind the verbs: paths, parameters, media types. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/http/transport.h"

namespace fusionllm::kube {

// InvalidArgument when the key would address something else than one object: DELETE of an empty name is that of a whole collection.
absl::Status CheckKey(const Resource& resource, const ObjectKey& key);

HttpHeader AcceptJson();
HttpHeader AcceptMetadata(absl::string_view kind);  // PartialObjectMetadata, PartialObjectMetadataList
HttpRequest ListRequest(const Resource& resource, absl::string_view ns, const ListOptions& options);
HttpRequest WatchRequest(const Resource& resource, absl::string_view ns, const WatchOptions& options);
HttpRequest WriteRequest(absl::string_view method, std::string path, absl::string_view media_type, absl::string_view body,
                         const WriteOptions& options);
HttpRequest ApplyRequest(const Resource& resource, const ObjectKey& key, absl::string_view body, const ApplyOptions& options);
HttpRequest DeleteRequest(const Resource& resource, const ObjectKey& key, const DeleteOptions& options);

// "PATCH /api/v1/namespaces/ns/pods/a", for messages: without parameters, headers and body.
std::string Describe(const HttpRequest& request);
// Of a header `Warning: 299 - "text"`: the text, cut.
std::optional<std::string> WarningText(const HttpHeader& header);

}  // namespace fusionllm::kube
