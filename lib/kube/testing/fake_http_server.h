// A FakeApiServer behind sockets: HTTP/1.1 on a free port of this machine, in TLS if given a certificate, so that programs and kubectl can
// speak to it. Each connection has a thread; bodies of requests have a Content-Length.
#pragma once

#include <condition_variable>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/raw_server.h"

namespace fusionllm::kube::testing {

class FakeHttpServer {
 public:
  // `api` must outlive it.
  explicit FakeHttpServer(FakeApiServer& api, const RawServerTls& tls = {});
  ~FakeHttpServer();

  std::string Url() const { return server_->Url(); }

  // Frozen it takes connections and requests, answers none and says nothing on watches, as a process that is stopped; thawed it goes on
  // with all of that, also for clients that have given up.
  void Freeze(bool frozen);
  // Cut it closes each connection once something comes on it or is to be sent, and new ones at once: as if nothing listened.
  void Cut(bool cut);
  // Each answer to a request is held back for so long, as by a distant network.
  void SetDelay(absl::Duration delay);

 private:
  // False: the server is going, or cut.
  bool WaitForTurn(bool answer);
  void Serve(RawConnection& connection);
  // False when the connection is to be closed.
  bool Answer(RawConnection& connection, const HttpRequest& request);
  bool Watch(RawConnection& connection, const HttpRequest& request);

  FakeApiServer& api_;
  std::stop_source stop_;
  base::Mutex mutex_;
  std::condition_variable changed_;
  bool frozen_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration delay_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RawServer> server_;
};

}  // namespace fusionllm::kube::testing
