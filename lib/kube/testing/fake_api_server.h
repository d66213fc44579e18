// An API server in memory, for tests: it speaks the HTTP of a real one through a Transport (or, by FakeHttpServer, through sockets), and a
// test can make it fail. It passes the same conformance suite as a real API server (api_conformance.h).
//
// Done as the real one does: create, get, list (selectors, pages, versions), update, JSON and merge patch, server-side apply, delete with
// preconditions, finalizers and grace periods of Pods, the status subresource, dry runs, watches with bookmarks, initial events and
// expired versions, metadata only, addresses and node ports for Services; and as its controllers do: the garbage collection of what an
// owner leaves behind, at once. Tokens of accounts (serviceaccounts/token) are made as fake_token.h has them; they are not checked. Not
// done: other defaults, schemas, quota, permissions, the scale subresource, lists with keys that DefaultListKeys() does not know.
//
// Thread-safe. Calls of its transports must have returned before it goes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/kube/api/resource.h"
#include "lib/kube/clock.h"
#include "lib/kube/http/transport.h"

namespace fusionllm::kube::testing {

// Something that goes wrong with the next requests that match it.
struct Fault {
  // "get", "list", "watch", "create", "update", "patch", "apply", "delete"; empty: any.
  std::string verb = {};
  std::string target = {};  // part of path and query
  int skip = 0;             // matching requests that still go well
  int times = 1;

  enum class Kind {
    kAnswer,       // the answer below, without doing anything
    kBreakBefore,  // the connection breaks, nothing is done
    kBreakAfter,   // done, but the answer is lost
    kHang,         // no answer until the client gives up
    kRaw,          // a stream: `body` as it is, then the end
  };
  Kind kind = Kind::kAnswer;
  int code = 500;
  std::string body = {};
  std::vector<HttpHeader> headers = {};
};

struct RecordedRequest {
  std::string verb;
  std::string method;
  std::string target;
  std::string user_agent;
  int code = 0;       // 0: no answer
  absl::Duration at;  // by the clock's Monotonic()
  bool metadata_only = false;
};

struct KindOptions {
  bool status_subresource = true;
  bool builtin = false;  // items of its lists do not repeat kind and apiVersion, as those of the server's own kinds
};

class FakeApiServer {
 public:
  // Serves Pods, Services, Secrets, ConfigMaps, Namespaces, Nodes, Leases, Events and a few more; there is the namespace "default".
  explicit FakeApiServer(Clock& clock);
  ~FakeApiServer();
  FakeApiServer(const FakeApiServer&) = delete;
  FakeApiServer& operator=(const FakeApiServer&) = delete;

  void Serve(const Resource& resource, const KindOptions& options = {});
  std::shared_ptr<Transport> NewTransport();

  // What the HTTP front needs: as Transport, below.
  absl::StatusOr<HttpResponse> Send(const HttpRequest& request, const UnaryLimits& limits, std::stop_token stop);
  absl::StatusOr<HttpResponse> Stream(const HttpRequest& request, const StreamLimits& limits, StreamSink& sink, std::stop_token stop);

  void AddFault(const Fault& fault);
  // Forgets its history: watches and pages from before are answered 410.
  void Compact();
  // Each open watch that wants bookmarks gets one now.
  void SendBookmarks();
  // Breaks the connections of all open watches.
  void BreakWatches();
  int open_watches() const;
  std::vector<RecordedRequest> requests() const;
  void ForgetRequests();
  // Has `on_request` called with each request from now on, after it was done and before it is answered; nothing else is done meanwhile, and
  // it must not call this server. Must outlive the server's last request.
  void OnRequest(std::function<void(const RecordedRequest&)> on_request);
  // Of all kinds, as "pods ns/name", in order.
  std::vector<std::string> objects() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace fusionllm::kube::testing
