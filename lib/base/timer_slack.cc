#include "lib/base/timer_slack.h"

#include <sys/prctl.h>

namespace fusionllm::base {

void WakeOnTime() { (void)prctl(PR_SET_TIMERSLACK, 1); }  // ns; 0 would be the default

}  // namespace fusionllm::base
