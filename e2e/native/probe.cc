// probe serve PORT, and probe measure HOST PORT BYTES: what a link does, seen from inside a Pod. The server answers 8 bytes with as many
// bytes as they name (little-endian). The client asks 20 times for one byte and once for BYTES, over one connection, and prints
// `rtt_ms=MEDIAN mbit_per_s=RATE`. A static program, so that its image holds nothing else.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kRounds = 20;
constexpr uint64_t kMaxBytes = 1ULL << 32;
std::array<char, 1 << 16> block{};

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = send(fd, data, size, MSG_NOSIGNAL);
    if (written <= 0) return false;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool ReadAll(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t got = recv(fd, data, size, 0);
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

void NoDelay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void Answer(int fd) {
  NoDelay(fd);
  uint64_t wanted = 0;
  bool good = true;
  while (good && ReadAll(fd, reinterpret_cast<char*>(&wanted), sizeof(wanted)) && wanted <= kMaxBytes) {
    for (uint64_t left = wanted; good && left > 0; left -= std::min<uint64_t>(left, block.size())) {
      good = WriteAll(fd, block.data(), std::min<uint64_t>(left, block.size()));
    }
  }
  close(fd);
}

int Serve(uint16_t port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(listener, 16) != 0) Fail("listen");
  for (;;) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) Fail("accept");
    std::thread(Answer, fd).detach();
  }
}

double SecondsFor(int fd, uint64_t bytes) {
  const auto start = std::chrono::steady_clock::now();
  if (!WriteAll(fd, reinterpret_cast<const char*>(&bytes), sizeof(bytes))) Fail("send");
  static std::array<char, 1 << 16> sink;
  for (uint64_t left = bytes; left > 0; left -= std::min<uint64_t>(left, sink.size())) {
    if (!ReadAll(fd, sink.data(), std::min<uint64_t>(left, sink.size()))) Fail("receive");
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

sockaddr_in Resolve(const char* host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host, nullptr, &hints, &found); error != 0) {
    std::fprintf(stderr, "probe: %s: %s\n", host, gai_strerror(error));
    std::exit(1);
  }
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof(address));
  address.sin_port = htons(port);
  freeaddrinfo(found);
  return address;
}

int Measure(const char* host, uint16_t port, uint64_t bytes) {
  const sockaddr_in address = Resolve(host, port);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) Fail("connect");
  NoDelay(fd);
  std::vector<double> round_trips;
  for (size_t round = 0; round < kRounds; ++round) round_trips.push_back(SecondsFor(fd, 1));
  std::nth_element(round_trips.begin(), round_trips.begin() + kRounds / 2, round_trips.end());
  const double rtt_s = round_trips[kRounds / 2];
  const double seconds = SecondsFor(fd, bytes);  // with one round trip: BYTES should take many
  std::printf("rtt_ms=%.2f mbit_per_s=%.2f\n", rtt_s * 1e3, static_cast<double>(bytes) * 8e-6 / seconds);
  close(fd);
  return 0;
}

uint64_t Number(const char* text) { return std::strtoull(text, nullptr, 10); }

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "serve" && argc == 3) return Serve(static_cast<uint16_t>(Number(argv[2])));
  if (mode == "measure" && argc == 5) return Measure(argv[2], static_cast<uint16_t>(Number(argv[3])), Number(argv[4]));
  std::fprintf(stderr, "usage: probe serve PORT | probe measure HOST PORT BYTES\n");
  return 2;
}
