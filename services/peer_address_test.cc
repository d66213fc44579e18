#include "services/peer_address.h"

#include <string>

#include "gtest/gtest.h"

namespace fusionllm::services {
namespace {

TEST(PeerAddressTest, HostsWithPortsAndOnesOwnNameAtTheRelayAreTaken) {
  for (const char* address : {"10.0.0.7:30001", "lab.example.org:7001", "[2001:db8::1]:7001", "192.0.2.1:1", "relay:a"}) {
    EXPECT_TRUE(CheckPeerAddress("a", address).ok()) << address << ": " << CheckPeerAddress("a", address);
  }
}

TEST(PeerAddressTest, OtherTargetsAndOtherNamesAreRefused) {
  const std::string long_one(600, 'a');
  for (const std::string& address : {std::string(), std::string("relay:b"), std::string("relay:"), std::string("unix:/run/docker.sock"),
                                     std::string("unix:///run/docker.sock"), std::string("dns:///10.0.0.1:80"), std::string("10.0.0.7"),
                                     std::string("10.0.0.7:0"), std::string("10.0.0.7:70000"), std::string("a:1\nb:2"), long_one + ":1"}) {
    EXPECT_EQ(CheckPeerAddress("a", address).code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

}  // namespace
}  // namespace fusionllm::services
