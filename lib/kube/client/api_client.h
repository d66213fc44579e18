// The verbs of the Kubernetes API, for any kind of object. Bodies are JSON text: each caller reads of them what it needs.
//
// Thread-safe; calls block until the server has answered, a deadline has passed or `stop` is requested. Errors are those of
// lib/kube/api/api_error.h (the server refused) and lib/kube/http/transport.h (there was no answer). After an error of the second kind a
// write may have been carried out: look before doing it again.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/kube/api/resource.h"

namespace fusionllm::kube {

struct CallOptions {
  absl::Duration timeout = absl::Seconds(30);  // of each attempt
  std::stop_token stop = {};
};

struct ListOptions {
  std::string label_selector = {};
  std::string field_selector = {};
  // Empty: the newest state (the server asks its quorum). "0": whatever the server has at hand. Else: at least that one.
  std::string resource_version = {};
  std::string resource_version_match = {};  // "Exact", "NotOlderThan"
  int limit = 0;                            // objects in an answer; 0: all
  std::string continue_token = {};          // of the answer before
  bool metadata_only = false;               // answers PartialObjectMetadataList
};

struct WatchOptions {
  std::string label_selector = {};
  std::string field_selector = {};
  std::string resource_version = {};  // from right after this one
  bool metadata_only = false;
  absl::Duration server_timeout = absl::Seconds(300);  // after which the server ends the watch; rounded to seconds
  absl::Duration header_timeout = absl::Seconds(60);   // within which the watch must be established
};

struct WriteOptions {
  std::string field_manager = {};
  bool dry_run = false;
  std::string subresource = {};  // "status", "scale"
  std::string name = {};         // of the object, for a Create of a subresource ("token")
};

struct ApplyOptions {
  std::string field_manager;  // required
  bool force = true;          // take over fields that others own
  bool dry_run = false;
  std::string subresource = {};
};

enum class PatchType { kJson, kMerge };
enum class DeletionPropagation { kBackground, kForeground, kOrphan };

struct DeleteOptions {
  DeletionPropagation propagation = DeletionPropagation::kBackground;
  // The object is deleted only if it still has these; empty: whatever it has.
  std::string uid = {};
  std::string resource_version = {};
  std::optional<int> grace_period_seconds = {};
  bool dry_run = false;
};

// Takes in a watch on the thread that called Watch(). An error ends the watch and becomes its result.
class WatchSink {
 public:
  virtual ~WatchSink() = default;
  // The server has accepted the watch.
  virtual absl::Status OnOpen() { return absl::OkStatus(); }
  // More of the stream of JSON objects, one a line, cut anywhere.
  virtual absl::Status OnData(absl::string_view chunk) = 0;
  // Longest silence from now on after which the watch counts as dead; asked after OnOpen and after each OnData.
  virtual absl::Duration IdleTimeout() const { return absl::InfiniteDuration(); }
};

class ApiClient {
 public:
  virtual ~ApiClient() = default;

  // Answers are the object (a List for List) as JSON.
  virtual absl::StatusOr<std::string> Get(const Resource& resource, const ObjectKey& key, const CallOptions& call = {}) = 0;
  // As Get, but answers PartialObjectMetadata: whether a Secret is there can be asked without learning what it holds.
  virtual absl::StatusOr<std::string> GetMetadata(const Resource& resource, const ObjectKey& key, const CallOptions& call = {}) = 0;
  // `ns` empty: all namespaces, or a kind that has none.
  virtual absl::StatusOr<std::string> List(const Resource& resource, absl::string_view ns, const ListOptions& options = {},
                                           const CallOptions& call = {}) = 0;
  // As List, but hands the answer to `sink` as it comes: a long list then needs no memory of its own length. This one does it in one piece.
  virtual absl::Status StreamList(const Resource& resource, absl::string_view ns, const ListOptions& options, WatchSink& sink,
                                  const CallOptions& call = {}) {
    const absl::StatusOr<std::string> list = List(resource, ns, options, call);
    if (!list.ok()) return list.status();
    const absl::Status opened = sink.OnOpen();
    return opened.ok() ? sink.OnData(*list) : opened;
  }
  virtual absl::StatusOr<std::string> Create(const Resource& resource, absl::string_view ns, absl::string_view body,
                                             const WriteOptions& options = {}, const CallOptions& call = {}) = 0;
  // Puts the whole object in place of the old one; a metadata.resourceVersion in the body that is no more the newest is a conflict.
  virtual absl::StatusOr<std::string> Update(const Resource& resource, const ObjectKey& key, absl::string_view body,
                                             const WriteOptions& options = {}, const CallOptions& call = {}) = 0;
  // Server-side apply: the body has apiVersion, kind, metadata.name and the fields that this manager owns, no others.
  virtual absl::StatusOr<std::string> Apply(const Resource& resource, const ObjectKey& key, absl::string_view body,
                                            const ApplyOptions& options, const CallOptions& call = {}) = 0;
  virtual absl::StatusOr<std::string> Patch(const Resource& resource, const ObjectKey& key, PatchType type, absl::string_view body,
                                            const WriteOptions& options = {}, const CallOptions& call = {}) = 0;
  // The answer is the object while finalizers hold it, else metav1.Status.
  virtual absl::StatusOr<std::string> Delete(const Resource& resource, const ObjectKey& key, const DeleteOptions& options = {},
                                             const CallOptions& call = {}) = 0;

  // Blocks while the watch lasts. OK: the server has ended it, which it does every few minutes. Never tries again by itself.
  virtual absl::Status Watch(const Resource& resource, absl::string_view ns, const WatchOptions& options, WatchSink& sink,
                             std::stop_token stop) = 0;

  // GET of another path: "/version", "/readyz", "/apis". The query, if any, is part of it and encoded already.
  virtual absl::StatusOr<std::string> GetPath(absl::string_view path, const CallOptions& call = {}) = 0;

  // By how much at least the server's clock is ahead of ours, below zero: behind, by its last answer; nothing: it does not say. Does not
  // block.
  virtual std::optional<absl::Duration> ServerClockSkew() const { return std::nullopt; }
};

}  // namespace fusionllm::kube
