#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Two connected queue pairs of one device, which do what they are told, line by line.

observe_peer.py DEVICE says "ready qp OWN PEER key LOCAL REMOTE" and then takes these commands:

    write ID    posts a signaled RDMA WRITE of 1 MiB with that wr_id; answers "posted ID"
    poll        waits for the next completion; answers "wc ID STATUS"
    dereg       deregisters the region that is written to; answers "deregistered"
    reset       takes the writing queue pair to RESET; answers "reset"
"""

import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

SIZE = 1 << 20
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


def gid_of(context):
    """An address of the device, and its place in the table."""
    for index in range(8):
        gid = str(context.query_gid(1, index).gid)
        if gid.strip("0:"):
            return gid, index
    raise RuntimeError("the device has no address yet")


def connect(qp, gid, index, to):
    """Takes a queue pair to RTS."""
    attr = QPAttr(port_num=1)
    attr.dest_qp_num = to.qp_num
    attr.path_mtu = e.IBV_MTU_4096
    attr.qp_access_flags = ACCESS
    attr.min_rnr_timer = 12
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
    attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(gid), sgid_index=index), is_global=1, port_num=1)
    qp.to_rts(attr)


def main():
    context = Context(name=sys.argv[1])
    pd, cq = PD(context), CQ(context, 16)
    source, target = MR(pd, SIZE, ACCESS), MR(pd, SIZE, ACCESS)
    caps = QPCap(max_send_wr=8, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    own, peer = (QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=caps)) for _ in "12")
    gid, index = gid_of(context)
    connect(own, gid, index, peer)
    connect(peer, gid, index, own)
    address, key = target.buf, target.rkey
    print("ready qp", own.qp_num, peer.qp_num, "key", source.lkey, key, flush=True)

    for line in sys.stdin:
        command, *rest = line.split()
        if command == "write":
            request = SendWR(wr_id=int(rest[0]), opcode=e.IBV_WR_RDMA_WRITE, num_sge=1,
                             sg=[SGE(source.buf, SIZE, source.lkey)],
                             send_flags=e.IBV_SEND_SIGNALED)
            request.set_wr_rdma(key, address)
            own.post_send(request)
            answer = f"posted {rest[0]}"
        elif command == "poll":
            count, completions = cq.poll(1)
            while not count:
                time.sleep(0.001)
                count, completions = cq.poll(1)
            answer = f"wc {completions[0].wr_id} {completions[0].status}"
        elif command == "dereg":
            target.close()
            answer = "deregistered"
        elif command == "reset":
            own.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
            answer = "reset"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
