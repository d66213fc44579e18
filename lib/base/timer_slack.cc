#include "lib/base/timer_slack.h"

#include <sys/prctl.h>

namespace fusionllm::base {

void SetMinimalTimerSlack() { (void)prctl(PR_SET_TIMERSLACK, 1UL); }  // ns; 0 would be the default

}  // namespace fusionllm::base
