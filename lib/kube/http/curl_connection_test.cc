// Which connections are made, and to whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "lib/kube/http/curl_transport.h"
#include "lib/kube/testing/raw_server.h"

namespace fusionllm::kube {
namespace {

using ::testing::HasSubstr;
using testing::RawConnection;
using testing::RawServer;

// As a server that is going away says, and one that spreads its clients over several, now and then.
TEST(CurlConnections, AfterAGoodbyeTheNextWriteTakesANewOne) {
  const RawServer server([](RawConnection& connection) {
    if (!connection.ReadRequest().empty()) connection.Answer(201, "made", "Connection: close\r\n");
    connection.WaitForClose();
  });
  const auto client = *CurlTransport::Make({.server = server.Url()});
  for (int i = 1; i <= 3; ++i) {
    const auto response = client->Send({.method = "POST", .target = "/", .body = "{}"}, {}, {});
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->body, "made");
    EXPECT_EQ(server.connections(), i);
  }
}

TEST(CurlConnections, AnAddressOfIpv6IsDialled) {
  if (!RawServer::HasIpv6()) GTEST_SKIP() << "this machine has no address ::1";
  const RawServer server([](RawConnection& connection) { connection.Answer(200, connection.ReadRequest()); }, {}, /*ipv6=*/true);
  const auto response = (*CurlTransport::Make({.server = server.Url()}))->Send({.target = "/"}, {}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->body, HasSubstr(absl::StrCat("Host: [::1]:", server.port(), "\r\n")));
}

}  // namespace
}  // namespace fusionllm::kube
