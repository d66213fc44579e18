// A FakeApiServer behind sockets: HTTP/1.1 on a free port of this machine, in TLS if given a certificate, so that programs and kubectl can
// speak to it. Each connection has a thread; bodies of requests have a Content-Length.
#pragma once

#include <string>

#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/raw_server.h"

namespace fusionllm::kube::testing {

class FakeHttpServer {
 public:
  // `api` must outlive it.
  explicit FakeHttpServer(FakeApiServer& api, const RawServerTls& tls = {});
  ~FakeHttpServer();

  std::string Url() const { return server_->Url(); }

 private:
  void Serve(RawConnection& connection);
  // False when the connection is to be closed.
  bool Answer(RawConnection& connection, const HttpRequest& request);
  bool Watch(RawConnection& connection, const HttpRequest& request);

  FakeApiServer& api_;
  std::stop_source stop_;
  std::unique_ptr<RawServer> server_;
};

}  // namespace fusionllm::kube::testing
