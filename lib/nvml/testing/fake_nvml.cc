// A library with NVML's functions and one card, for machines without a driver. What the card does is set by the environment variable
// FAKE_NVML: "" well; "driver" the library does not begin; "slice" it does not tell how busy it is, nor of errors; "lost" it has fallen off
// the bus; "broken" its memory has had errors and it is hot. FAKE_NVML_XIDS: numbers of errors that the driver tells from now on, once each
// time that the variable changes: "79 31".
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <sstream>
#include <string>

namespace {

bool Says(const char* word) {
  const char* set = std::getenv("FAKE_NVML");
  return set != nullptr && std::strcmp(set, word) == 0;
}
int card = 0;
int begun = 0;
int event_sets = 0;
unsigned longest_wait = 0;

struct EventSet {
  bool registered = false;
  std::string last_xids;
  std::deque<unsigned long long> xids;

  void Listen() {
    const char* set = std::getenv("FAKE_NVML_XIDS");
    const std::string now = set == nullptr ? "" : set;
    if (now == last_xids) return;
    last_xids = now;
    std::istringstream words(now);
    for (unsigned long long xid = 0; words >> xid;) xids.push_back(xid);
  }
};

struct Event {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  if (Says("driver")) return 9;
  ++begun;
  return 0;
}
int nvmlShutdown() {
  --begun;
  return 0;
}
// Not NVML's: how often it was begun and not ended.
int fakeNvmlBegun() { return begun; }
// Nor this: event sets that were made and not freed.
int fakeNvmlEventSets() { return event_sets; }
// Milliseconds that somebody was ready to wait for an event.
int fakeNvmlLongestWait() { return static_cast<int>(longest_wait); }
const char* nvmlErrorString(int error) {
  switch (error) {
    case 3:
      return "Not Supported";
    case 6:
      return "Not Found";
    case 9:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  if (std::strcmp(bus, "0000:3b:00.0") != 0) return 6;
  *device = &card;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  if (Says("lost")) return 15;
  if (device != &card || Says("slice")) return 3;
  rates[0] = 87;
  rates[1] = 40;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* sizes) {
  if (device != &card) return 3;
  sizes[0] = 80ULL << 30;
  sizes[1] = 75ULL << 30;
  sizes[2] = 5ULL << 30;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* degrees) {
  if (device != &card || sensor != 0) return 3;
  *degrees = 61;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  if (device != &card) return 3;
  *milliwatts = 412'500;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  if (device != &card) return 3;
  *reasons = Says("broken") ? 0x48 : 0x4;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter, unsigned long long* errors) {
  if (device != &card || type != 1 || counter != 0 || Says("slice")) return 3;
  *errors = Says("broken") ? 2 : 0;
  return 0;
}
int nvmlEventSetCreate(void** set) {
  *set = new EventSet;
  ++event_sets;
  return 0;
}
int nvmlEventSetFree(void* set) {
  delete static_cast<EventSet*>(set);
  --event_sets;
  return 0;
}
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
  if (device != &card || types != 8 || Says("slice")) return 3;
  static_cast<EventSet*>(set)->registered = true;
  return 0;
}
int nvmlEventSetWait_v2(void* set, void* data, unsigned timeout_ms) {
  longest_wait = std::max(longest_wait, timeout_ms);
  EventSet& events = *static_cast<EventSet*>(set);
  events.Listen();
  if (!events.registered || events.xids.empty()) {
    if (Says("lost")) return 15;
    return 10;
  }
  *static_cast<Event*>(data) = {&card, 8, events.xids.front(), 0xFFFFFFFF, 0xFFFFFFFF};
  events.xids.pop_front();
  return 0;
}

}  // extern "C"
