// HTTP/1.1 to one server by libcurl, an API server say; or HTTP/2 where the server is known to speak it.
//
// Unary calls share a pool of kept-alive connections, one call at a time on each; every stream has a connection of its own while it lasts,
// new unless one has carried an answer to its end a moment before: a watch goes on where its list ended, without another handshake.
// Certificates and keys come from memory and never touch a disk. The server's name is always verified along with its chain unless
// `insecure` is set. Redirects are not followed: credentials go to the server that was named. A peer that is gone without a word is noticed
// by TCP (keepalive, TCP_USER_TIMEOUT), one that is silent by the deadlines of the call. A request with a body is sent once: a connection
// that breaks while the answer is awaited is an error, for the server may have carried it out. Proxies come from `proxy_url`, else from
// HTTPS_PROXY, HTTP_PROXY (lower case for http://) and NO_PROXY, as libcurl reads them.
//
// Thread-safe. Destroy it after the last call has returned.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/http/server_url.h"
#include "lib/kube/http/transport.h"

namespace fusionllm::kube {

struct TlsMaterial {
  std::string ca_pem;  // empty: the authorities that the machine trusts
  std::string certificate_pem;
  std::string key_pem;
  bool operator==(const TlsMaterial&) const = default;
};

struct CurlTransportOptions {
  std::string server;           // as ParseServerUrl reads it
  std::string tls_server_name;  // the name in the server's certificate, if it is not that of the address
  bool insecure = false;        // believe any server
  bool http2 = false;           // without asking first, as gRPC does: an http:// server that speaks nothing else
  std::string proxy_url;        // http://, https://, socks5://; empty: the environment's
  // Asked before every call; a change (a rotated authority, a new client certificate) leaves the old connections to their streams and
  // opens new ones. Unset: the default material.
  std::function<absl::StatusOr<std::shared_ptr<const TlsMaterial>>()> tls = nullptr;
  absl::Duration connect_timeout = absl::Seconds(30);  // name, TCP and TLS together
  absl::Duration tls_timeout = absl::Seconds(10);      // the TLS handshake alone
  size_t max_idle_connections = 8;
  // Of idle connections a stream takes one that has been idle for less than this: an older one may have no peer behind it any more, which a
  // call finds out by a deadline, and one who has lost a stream is better off with a new one.
  absl::Duration fresh_for = absl::Seconds(1);
};

class CurlHandle;

class CurlTransport : public Transport {
 public:
  // InvalidArgument: the address or the proxy cannot be read. Does not connect.
  static absl::StatusOr<std::unique_ptr<CurlTransport>> Make(CurlTransportOptions options);
  ~CurlTransport() override;

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request, const UnaryLimits& limits, std::stop_token stop) override;
  absl::StatusOr<HttpResponse> Stream(const HttpRequest& request, const StreamLimits& limits, StreamSink& sink,
                                      std::stop_token stop) override;

 private:
  CurlTransport(CurlTransportOptions options, ServerUrl server);
  absl::StatusOr<std::shared_ptr<const TlsMaterial>> Material() const;
  struct Idle {
    std::unique_ptr<CurlHandle> handle;
    absl::Duration since;
  };
  // A handle with these certificates: one that has been idle for less than `longest`, or a new one.
  absl::StatusOr<std::unique_ptr<CurlHandle>> Take(std::shared_ptr<const TlsMaterial> material, absl::Duration longest);
  void GiveBack(std::unique_ptr<CurlHandle> handle);

  const CurlTransportOptions options_;
  const ServerUrl server_;
  base::Mutex mutex_;
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mutex_);  // the most recently used last
};

}  // namespace fusionllm::kube
