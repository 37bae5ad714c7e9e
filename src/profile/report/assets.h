/*
 * Style and script of the report's page: the files of src/profile/report/, made into bytes by the build.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_REPORT_ASSETS_H
#define QUERN_PROFILE_REPORT_ASSETS_H

#include <stddef.h>

extern const unsigned char report_css[], report_script[];
extern const size_t report_css_bytes, report_script_bytes;

#endif
