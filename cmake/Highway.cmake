# SPDX-License-Identifier: Apache-2.0
# Highway (SIMD with run-time dispatch). Debian's package carries pkg-config files.
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
