#include "lib/kube/http/server_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace fusionllm::kube {
namespace {

using ::testing::HasSubstr;

TEST(ServerUrl, ReadsWhatKubeconfigsHold) {
  const auto plain = ParseServerUrl("https://10.0.0.1:6443");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->host, "10.0.0.1");
  EXPECT_EQ(plain->port, 6443);
  EXPECT_EQ(plain->base_path, "");
  EXPECT_EQ(plain->HostPort(), "10.0.0.1:6443");
  EXPECT_EQ(ParseServerUrl("https://api.example.com/")->port, 443);
  EXPECT_EQ(ParseServerUrl("https://api.example.com/")->authority, "api.example.com");
  EXPECT_EQ(ParseServerUrl("http://localhost")->port, 80);
}

TEST(ServerUrl, KeepsTheBasePath) {
  // Rancher and Teleport serve many clusters below one host.
  EXPECT_EQ(ParseServerUrl("https://rancher.example.com/k8s/clusters/c-1/")->base_path, "/k8s/clusters/c-1");
}

TEST(ServerUrl, KeepsTheBracketsOfIpv6) {
  const auto url = ParseServerUrl("https://[2001:db8::1]:6443");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->host, "[2001:db8::1]");
  EXPECT_EQ(url->HostPort(), "[2001:db8::1]:6443");
}

TEST(ServerUrl, RefusesEverythingElse) {
  for (const char* text : {"", "10.0.0.1:6443", "api.example.com", "ftp://a", "file:///etc/passwd", "https://", "https://a:0",
                           "https://a:99999", "https://a/?x=1", "https://a/#x"}) {
    EXPECT_EQ(ParseServerUrl(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(ParseServerUrl("https://" + std::string(4000, 'a')).ok());
}

TEST(ServerUrl, APasswordIsNotRepeated) {
  const absl::Status status = ParseServerUrl("https://user:hunter2@a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("hunter2")));
  for (const std::string& text : {std::string("ftp://user:hunter2@a"), std::string("user:hunter2@a"),
                                  std::string("https://user:hunter2@a:x"), std::string("https://user:hun/ter2@a"),
                                  std::string("https://user:hunter2@a b"), "https://user:hunter2@" + std::string(4000, 'a')}) {
    const absl::Status refused = ParseServerUrl(text).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(refused.message()), ::testing::Not(HasSubstr("ter2"))) << text;
  }
  EXPECT_EQ(RedactUserInfo("https://user:p@ss@a:1/x"), "https://..@a:1/x");
  EXPECT_EQ(RedactUserInfo("user:pass@a"), "..@a");
  EXPECT_EQ(RedactUserInfo("https://a:1/x"), "https://a:1/x");
}

TEST(ProxyUrl, IsAHostThatCanBeReachedAndItsPasswordIsNotRepeated) {
  for (const char* text : {"http://proxy:1", "https://proxy", "https://proxy:1/", "socks5://[fd00::1]:1", "socks5h://proxy:1",
                           "http://alice:hunter2@proxy:1"}) {
    EXPECT_TRUE(CheckProxyUrl(text).ok()) << text << CheckProxyUrl(text);
  }
  for (const std::string& text : std::vector<std::string>{
           "", "proxy:1", "ftp://proxy", "http://", "http://alice:hunter2@", "http://alice:hunter2@[::1]:x",
           "http://alice:hunter2@proxy:999999", "http://alice:hunter2@proxy\r\n", "http://alice:hunter2@pro xy",
           std::string("http://alice:hunter2@proxy\0.example.org", 39), "http://alice:hunter2@" + std::string(4000, 'p'),
           "http://alice:hunter2@proxy/path", "http://alice:hunter2@proxy?query", "http://alice:hunter2@proxy#fragment"}) {
    const absl::Status status = CheckProxyUrl(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("hunter2"))) << text;
  }
}

TEST(ProxyUrl, IsNoSocketOfThisMachine) {
  // Which libcurl would dial.
  EXPECT_EQ(CheckProxyUrl("socks5h://localhost/run/some.socket").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fusionllm::kube
