#include "lib/base/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
namespace fusionllm::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostPortTest, NamesAndAddressesWithAPortCanBeDialled) {
  for (const char* text :
       {"10.0.0.1:7001", "lab-3.example.org:1", "host:65535", "[2001:db8::1]:7001", "[fe80::1%eth0]:80", "[::ffff:10.0.0.1]:5"}) {
    EXPECT_TRUE(CheckDialable(text).ok()) << CheckDialable(text);
  }
}

TEST(HostPortTest, WhatCannotIsRefusedInWords) {
  const auto refused = [](absl::string_view text) {
    EXPECT_EQ(CheckDialable(text).code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(CheckDialable(text).message());
  };
  for (const char* text : {"", ":", "host", "host:", ":7001", "host:x", "host:-1", "host: 7", "host:65536", "host:99999999999", "::1:7001",
                           "[::1:7001", "[]:7001", "[10.0.0.1]:7001", "[::1%]:7001", "a b:7001", "$(X):7001", "-x:7001", "a,b:7001"}) {
    EXPECT_THAT(refused(text), HasSubstr("is not HOST:PORT")) << text;
  }
  EXPECT_THAT(refused(absl::StrCat(std::string(254, 'a'), ":7001")), HasSubstr("is not HOST:PORT"));
  EXPECT_THAT(refused("host:0"), HasSubstr("port 0"));
  for (const std::string host : {"0.0.0.0", "[::]"}) EXPECT_THAT(refused(host + ":7001"), HasSubstr("stands for any"));
}

TEST(HostPortTest, HostsAloneAreNamesAndAddresses) {
  for (const char* host : {"hub.example.org", "hub", "10.0.0.1", "2001:db8::1", "[2001:db8::1]", "::1", "node-7", "7", "a.7b"}) {
    EXPECT_TRUE(CheckDialableHost(host).ok()) << CheckDialableHost(host);
  }
  for (const char* host : {"", "hub:7000", "10.0.0.1:7000", "10.0.0", "10.0.0.256", "[10.0.0.1]", "[hub]", "[::1", "[fd00::1]:7000", "a b",
                           "-x", "https://hub", "hub/x", "a,b", "$(X)"}) {
    EXPECT_EQ(CheckDialableHost(host).code(), absl::StatusCode::kInvalidArgument) << host;
    EXPECT_THAT(std::string(CheckDialableHost(host).message()), HasSubstr(absl::StrCat("\"", host, "\" is no host name"))) << host;
  }
  for (const char* any : {"0.0.0.0", "::", "[::]"}) {
    EXPECT_THAT(std::string(CheckDialableHost(any).message()), HasSubstr("stands for any")) << any;
  }
}

TEST(HostPortTest, ServersListenOnAnyAddressAndFreePortsToo) {
  for (const char* text : {"10.0.0.1:7001", "lab:65535", "localhost:0", "0.0.0.0:0", "[::]:0", "[fe80::1%eth0]:80"}) {
    EXPECT_TRUE(CheckListenable(text).ok()) << CheckListenable(text);
  }
  for (const char* text :
       {"", "7001", ":7001", "*:7001", "lab", "lab:", "lab:http", "lab:-1", "lab:65536", "::1:7001", "a b:1", "lab:70000"}) {
    EXPECT_EQ(CheckListenable(text).code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(CheckListenable(text).message()), HasSubstr("is not HOST:PORT")) << text;
  }
}

TEST(HostPortTest, AddressesGetTheirBracketsOnce) {
  EXPECT_EQ(JoinHostPort("lab", "7001"), "lab:7001");
  EXPECT_EQ(JoinHostPort("192.0.2.1", "7001"), "192.0.2.1:7001");
  EXPECT_EQ(JoinHostPort("2001:db8::1", "7001"), "[2001:db8::1]:7001");
  EXPECT_EQ(JoinHostPort("[2001:db8::1]", "7001"), "[2001:db8::1]:7001");
}

TEST(HostPortTest, TheyComeApartAgain) {
  for (const auto& [text, host, port] : {std::tuple("lab:7001", "lab", 7001), std::tuple("[2001:db8::1]:0", "2001:db8::1", 0)}) {
    const auto parts = SplitHostPort(text);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ(parts->host, host);
    EXPECT_EQ(parts->port, port);
  }
  EXPECT_EQ(SplitHostPort("::1:7001").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HostPortTest, AnyAddressIsKnownWithAndWithoutBrackets) {
  for (const char* any : {"", "*", "0.0.0.0", "::", "[::]"}) EXPECT_TRUE(IsWildcardAddress(any)) << any;
  for (const char* one : {"lab", "10.0.0.1", "::1", "[::1]"}) EXPECT_FALSE(IsWildcardAddress(one)) << one;
}

TEST(HostPortTest, AnyAddressIsKnownHoweverItIsSpelt) {
  for (const char* any : {"0", "00", "0x0", "0X0", "0.0", "0.0.0", "000.000.000.000", "0x0.0", "0:0:0:0:0:0:0:0", "[0:0:0:0:0:0:0:0]",
                          "::0", "[::0]", "0::", "::0.0.0.0", "::ffff:0.0.0.0", "[::FFFF:0:0]", "::%lo", "[::%eth0]"}) {
    EXPECT_TRUE(IsWildcardAddress(any)) << any;
    EXPECT_EQ(CheckDialableHost(any).code(), absl::StatusCode::kInvalidArgument) << any;
    EXPECT_EQ(CheckDialable(JoinHostPort(any, "7001")).code(), absl::StatusCode::kInvalidArgument) << any;
  }
  for (const char* one : {"0.0.0.1", "0.1", "1", "0x1", "0x", "0.lab", "0-0", "00:00", "::1", "[::0:1]", "::ffff:0.0.0.1",
                          "[::ffff:127.0.0.1]", "64:ff9b::", "fe80::%eth0", "[::"}) {
    EXPECT_FALSE(IsWildcardAddress(one)) << one;
  }
}

TEST(HostPortTest, LoopbackIsKnownHoweverItIsSpelt) {
  for (const char* own : {"127.0.0.1", "127.1", "127.255.3.4", "0x7f.1", "2130706433", "::1", "[::1]", "0:0:0:0:0:0:0:1",
                          "[::ffff:127.0.0.1]", "::ffff:7f00:1", "::1%lo", "localhost", "LocalHost", "localhost.", "kind.localhost"}) {
    EXPECT_TRUE(IsLoopback(own)) << own;
  }
  for (const char* other : {"", "128.0.0.1", "126.255.255.255", "10.127.0.1", "::", "::2", "[::ffff:10.0.0.1]", "localhost.example.org",
                            "mylocalhost", "0.0.0.0", "lab"}) {
    EXPECT_FALSE(IsLoopback(other)) << other;
  }
}

// The system takes these, and gRPC asks a DNS server for them by name.
TEST(HostPortTest, AShortenedAddressIsRefusedByNameAndWrittenOut) {
  for (const auto& [text, whole] :
       {std::pair("127.1:0", "127.0.0.1"), std::pair("2130706433:7001", "127.0.0.1"), std::pair("0x7f.1:7001", "127.0.0.1"),
        std::pair("10.0.1:7001", "10.0.0.1"), std::pair("010.0.0.1:7001", "8.0.0.1"), std::pair("0:0", "0.0.0.0")}) {
    EXPECT_EQ(CheckListenable(text).code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(CheckListenable(text).message()),
                AllOf(HasSubstr(text), HasSubstr(absl::StrCat("is not written as four decimal numbers; the system takes it for ", whole))))
        << text;
  }
  EXPECT_THAT(std::string(CheckDialable("127.1:7001").message()), HasSubstr("takes it for 127.0.0.1"));
  EXPECT_TRUE(CheckListenable("7b:0").ok());
}

}  // namespace
}  // namespace fusionllm::base
