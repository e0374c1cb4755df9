#include "runtime/base/tls_block.h"

namespace stillpoint {

constinit thread_local TlsBlock tls_block;

}  // namespace stillpoint
