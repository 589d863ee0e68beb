# SPDX-License-Identifier: BSD-3-Clause
"""What perf/peers is made of:

catalog   the peers: how each is found, started, and got where it is absent
process   one program of one side, bounded, its rows read
probe     in which mode the machine is
figures   arithmetic: medians, pairs of one mode, bounds
rounds    who is measured when: pilot, then pairs
chart     the picture
report    table and JSON
options   the command line
"""
