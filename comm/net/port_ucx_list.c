/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_ucx_list.c - which transports UCX could use here, and on which
 * devices; asked of its lower layer, which opens nothing for good.
 */
#include "comm/net/port_ucx_list.h"

#include <stdbool.h>
#include <uct/api/uct.h>

/* One memory domain: its transports. */
static void list_domain(uct_component_h component, const char *name,
                        wefti_port_found *found, void *context)
{
    uct_md_config_t *settings;
    uct_md_h domain;
    uct_tl_resource_desc_t *resources;
    unsigned count;
    if (uct_md_config_read(component, NULL, NULL, &settings) != UCS_OK) {
        return;
    }
    ucs_status_t status = uct_md_open(component, name, settings, &domain);
    uct_config_release(settings);
    if (status != UCS_OK) {
        return; /* what cannot be opened cannot be used */
    }
    if (uct_md_query_tl_resources(domain, &resources, &count) == UCS_OK) {
        for (unsigned i = 0; i < count; i++) {
            found(context, resources[i].tl_name, resources[i].dev_name,
                  resources[i].dev_type == UCT_DEVICE_TYPE_NET);
        }
        uct_release_tl_resource_list(resources);
    }
    uct_md_close(domain);
}

static void list_component(uct_component_h component, wefti_port_found *found,
                           void *context)
{
    enum { DOMAINS_MOST = 64 };
    uct_md_resource_desc_t domains[DOMAINS_MOST];
    uct_component_attr_t about = {
        .field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
    if (uct_component_query(component, &about) != UCS_OK ||
        about.md_resource_count == 0 ||
        about.md_resource_count > DOMAINS_MOST) {
        return;
    }
    about.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    about.md_resources = domains;
    unsigned count = about.md_resource_count;
    if (uct_component_query(component, &about) != UCS_OK) {
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        list_domain(component, domains[i].md_name, found, context);
    }
}

void wefti_port_ucx_list(wefti_port_found *found, void *context)
{
    uct_component_h *components;
    unsigned count;
    if (uct_query_components(&components, &count) != UCS_OK) {
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        list_component(components[i], found, context);
    }
    uct_release_component_list(components);
}
