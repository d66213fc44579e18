// delay_packets QUEUE DELAY_US [LOSS_PER_MILLION]: holds every packet that netfilter hands to NFQUEUE number QUEUE of this network
// namespace for DELAY_US microseconds, in order, and drops some by chance (seeded, so that two runs drop the same ones). For kernels
// without netem. Only headers' metadata is copied to this process, the payloads stay in the kernel: one core holds several Gbit/s. Prints
// `ready` when packets are being held; ends on SIGTERM or SIGINT, and the kernel lets what is queued pass by --queue-bypass.
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr uint32_t kMaxHeld = 200'000;  // packets; 64 KB each at 1 Gbit/s and a second of delay are 2,000
constexpr int kReceiveBufferBytes = 64 << 20;

volatile sig_atomic_t stop = 0;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "delay_packets: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// One netlink message to the queue, built field by field.
class Message {
 public:
  Message(uint16_t type, uint16_t queue) : bytes_(NLMSG_LENGTH(sizeof(nfgenmsg))) {
    header()->nlmsg_type = static_cast<uint16_t>((NFNL_SUBSYS_QUEUE << 8) | type);
    header()->nlmsg_flags = NLM_F_REQUEST;
    auto* general = static_cast<nfgenmsg*>(NLMSG_DATA(header()));
    general->nfgen_family = AF_UNSPEC;
    general->version = NFNETLINK_V0;
    general->res_id = htons(queue);
  }

  template <typename T>
  Message& Add(uint16_t attribute, const T& value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + NLA_ALIGN(NLA_HDRLEN + sizeof(T)));
    const nlattr head{static_cast<uint16_t>(NLA_HDRLEN + sizeof(T)), attribute};
    std::memcpy(&bytes_[at], &head, sizeof(head));
    std::memcpy(&bytes_[at + NLA_HDRLEN], &value, sizeof(T));
    return *this;
  }

  bool Send(int netlink) {
    header()->nlmsg_len = static_cast<uint32_t>(bytes_.size());
    return send(netlink, bytes_.data(), bytes_.size(), 0) == static_cast<ssize_t>(bytes_.size());
  }

  // Sends, and waits until the kernel has said yes or no.
  bool SendAndConfirm(int netlink) {
    header()->nlmsg_flags |= NLM_F_ACK;
    if (!Send(netlink)) return false;
    char answer[4096];
    const ssize_t received = recv(netlink, answer, sizeof(answer), 0);
    const auto* head = reinterpret_cast<const nlmsghdr*>(answer);
    if (received < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(nlmsgerr))) || head->nlmsg_type != NLMSG_ERROR) return false;
    errno = -static_cast<const nlmsgerr*>(NLMSG_DATA(head))->error;
    return errno == 0;
  }

 private:
  nlmsghdr* header() { return reinterpret_cast<nlmsghdr*>(bytes_.data()); }
  std::vector<char> bytes_;
};

class Queue {
 public:
  explicit Queue(uint16_t number) : number_(number), netlink_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER)) {
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    if (netlink_ < 0 || bind(netlink_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Fail("netlink socket");
    const int one = 1;
    setsockopt(netlink_, SOL_NETLINK, NETLINK_NO_ENOBUFS, &one, sizeof(one));
    setsockopt(netlink_, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBufferBytes, sizeof(kReceiveBufferBytes));
    nfqnl_msg_config_cmd bind_command{};
    bind_command.command = NFQNL_CFG_CMD_BIND;
    bind_command.pf = htons(AF_INET);
    if (!Message(NFQNL_MSG_CONFIG, number_).Add(NFQA_CFG_CMD, bind_command).SendAndConfirm(netlink_)) Fail("taking the queue");
    nfqnl_msg_config_params metadata_only{};
    metadata_only.copy_mode = NFQNL_COPY_META;
    // Without the GSO flag the kernel would cut super-packets into single ones first, and each would take a round here.
    if (!Message(NFQNL_MSG_CONFIG, number_)
             .Add(NFQA_CFG_PARAMS, metadata_only)
             .Add(NFQA_CFG_QUEUE_MAXLEN, htonl(kMaxHeld))
             .Add(NFQA_CFG_FLAGS, htonl(NFQA_CFG_F_GSO))
             .Add(NFQA_CFG_MASK, htonl(NFQA_CFG_F_GSO))
             .SendAndConfirm(netlink_)) {
      Fail("configuring the queue");
    }
  }
  ~Queue() { close(netlink_); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  int netlink() const { return netlink_; }

  // Packet ids that have arrived since the last call.
  std::vector<uint32_t> Receive() {
    std::vector<uint32_t> ids;
    ssize_t received;
    while ((received = recv(netlink_, buffer_.data(), buffer_.size(), MSG_DONTWAIT)) > 0) {
      int left = static_cast<int>(received);
      for (auto* head = reinterpret_cast<nlmsghdr*>(buffer_.data()); NLMSG_OK(head, left); head = NLMSG_NEXT(head, left)) {
        if (const std::optional<uint32_t> id = PacketId(head)) ids.push_back(*id);
      }
    }
    return ids;
  }

  void Drop(uint32_t id) { Decide(NFQNL_MSG_VERDICT, NF_DROP, id); }
  // Lets this packet and all that came before it pass.
  void PassUpTo(uint32_t id) { Decide(NFQNL_MSG_VERDICT_BATCH, NF_ACCEPT, id); }

 private:
  static std::optional<uint32_t> PacketId(const nlmsghdr* head) {
    if (head->nlmsg_type != ((NFNL_SUBSYS_QUEUE << 8) | NFQNL_MSG_PACKET)) return std::nullopt;
    const char* at = static_cast<const char*>(NLMSG_DATA(head)) + NLMSG_ALIGN(sizeof(nfgenmsg));
    const char* end = reinterpret_cast<const char*>(head) + head->nlmsg_len;
    while (end - at >= NLA_HDRLEN) {
      const auto* attribute = reinterpret_cast<const nlattr*>(at);
      if (attribute->nla_len < NLA_HDRLEN || attribute->nla_len > end - at) return std::nullopt;
      if ((attribute->nla_type & NLA_TYPE_MASK) == NFQA_PACKET_HDR && attribute->nla_len >= NLA_HDRLEN + sizeof(nfqnl_msg_packet_hdr)) {
        nfqnl_msg_packet_hdr packet;
        std::memcpy(&packet, at + NLA_HDRLEN, sizeof(packet));
        return ntohl(packet.packet_id);
      }
      at += NLA_ALIGN(attribute->nla_len);
    }
    return std::nullopt;
  }

  void Decide(uint16_t type, uint32_t verdict, uint32_t id) {
    if (!Message(type, number_).Add(NFQA_VERDICT_HDR, nfqnl_msg_verdict_hdr{htonl(verdict), htonl(id)}).Send(netlink_)) Fail("verdict");
  }

  uint16_t number_;
  int netlink_;
  std::vector<char> buffer_ = std::vector<char>(1 << 20);
};

void Run(Queue& queue, int64_t delay_ns, uint32_t loss_per_million) {
  struct Held {
    uint32_t id;
    int64_t due_ns;
  };
  std::deque<Held> held;
  std::mt19937 chance(42);  // NOLINT(cert-msc51-cpp): the same packets are lost in each run
  pollfd readable{queue.netlink(), POLLIN, 0};
  while (stop == 0) {
    std::optional<uint32_t> last;
    for (const int64_t now = NowNs(); !held.empty() && held.front().due_ns <= now; held.pop_front()) last = held.front().id;
    if (last.has_value()) queue.PassUpTo(*last);
    const int64_t wait_ns = held.empty() ? 1'000'000'000 : std::max<int64_t>(0, held.front().due_ns - NowNs());
    const timespec wait{wait_ns / 1'000'000'000, wait_ns % 1'000'000'000};
    if (ppoll(&readable, 1, &wait, nullptr) <= 0) continue;
    for (const uint32_t id : queue.Receive()) {
      if (loss_per_million > 0 && chance() % 1'000'000 < loss_per_million) {
        queue.Drop(id);
      } else {
        held.push_back({id, NowNs() + delay_ns});
      }
    }
  }
}

// -1: not a number from 0 to `most`.
int64_t Number(const char* text, int64_t most) {
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text, &end, 10);
  return errno != 0 || end == text || *end != '\0' || value < 0 || value > most ? -1 : value;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t queue_number = argc >= 3 ? Number(argv[1], UINT16_MAX) : -1;
  const int64_t delay_us = argc >= 3 ? Number(argv[2], 60'000'000) : -1;
  const int64_t loss = argc == 4 ? Number(argv[3], 1'000'000) : 0;
  if (argc > 4 || queue_number < 0 || delay_us < 0 || loss < 0) {
    std::fprintf(stderr, "usage: delay_packets QUEUE DELAY_US [LOSS_PER_MILLION]\n");
    return 2;
  }
  struct sigaction on_signal {};  // without SA_RESTART: ppoll returns
  on_signal.sa_handler = [](int) { stop = 1; };
  sigaction(SIGTERM, &on_signal, nullptr);
  sigaction(SIGINT, &on_signal, nullptr);
  prctl(PR_SET_TIMERSLACK, 1000);  // the default of 50 us would show in short delays
  Queue queue(static_cast<uint16_t>(queue_number));
  std::puts("ready");
  std::fflush(stdout);
  Run(queue, delay_us * 1000, static_cast<uint32_t>(loss));
  return 0;
}
