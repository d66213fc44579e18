// Clients of a RawServer, for tests of CurlTransport, and what they ask of it. Functions that can fail report it to gtest.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "lib/kube/http/curl_transport.h"
#include "lib/kube/testing/raw_server.h"

namespace fusionllm::kube::testing {

inline std::unique_ptr<CurlTransport> Client(const RawServer& server, CurlTransportOptions options = {}) {
  if (options.server.empty()) options.server = server.Url();
  auto transport = CurlTransport::Make(std::move(options));
  EXPECT_TRUE(transport.ok()) << transport.status();
  return *std::move(transport);
}

inline HttpRequest Get(const std::string& target) { return {.method = "GET", .target = target}; }

// Answers every request with its own text.
inline void Echo(RawConnection& connection) {
  for (std::string request = connection.ReadRequest(); !request.empty(); request = connection.ReadRequest())
    connection.Answer(200, request);
}

}  // namespace fusionllm::kube::testing
